"""An agent that stalls before it writes a run to its journal: the trail has what happened, once.

The agent is a real process with a real socket, and is stopped with SIGSTOP. The centre's clock is set forward instead
of waiting for a minute. Only a process of the test is moved.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from support.kernel import THREADS, masks, process
from support.policy_host import NEVER_BUSY

from pinner.agent import wire
from pinner.agent.client import AgentClient
from pinner.model.audit import Caller
from pinner.model.errors import PinnerError, RunConflict
from pinner.model.journal import NEVER_BEGUN, Run
from pinner.model.page import PageRequest
from pinner.model.plan import Plan
from pinner.model.request import Request
from pinner.service.compose import ServiceParts, compose
from pinner.store.repositories import Store, open_store

pytestmark = [
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="to move a thread takes two CPUs"),
    pytest.mark.skipif(os.geteuid() != 0, reason="the agent runs as root"),
    pytest.mark.fault(55),
]
ANN = Caller("ann", "cli", "req-1")
CPUS = sorted(os.sched_getaffinity(0))
AGENT = Path(__file__).parents[1] / "support" / "agent_process.py"


@dataclass
class Host:
    """A real agent, the process that it may move, and a central database."""

    agent: "subprocess.Popen[str]"
    client: AgentClient
    path: Path
    busy: int
    store: Store

    def service(self, ahead: timedelta = timedelta()) -> ServiceParts:
        """A service of its own, as after a restart, whose clock is ahead."""
        now = lambda: datetime.now(UTC) + ahead  # noqa: E731
        return compose({"h1": self.client}, self.store, now, lambda: uuid.uuid4().hex[:12], 0.0)

    def plan(self, parts: ServiceParts) -> Plan:
        """A plan that moves the process to the first CPU."""
        request = Request(processes=(str(self.busy),), busy_threshold=NEVER_BUSY, housekeeping=str(CPUS[0]))
        return parts.service.plan("h1", request, None, 0.0, ANN)

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """The agent does not run within this block."""
        self.agent.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.agent.send_signal(signal.SIGCONT)

    def is_moved(self) -> bool:
        return set(masks(self.busy).values()) == {str(CPUS[0])}


@pytest.fixture
def host(libvirtd: str, tmp_path: Path) -> Iterator[Host]:
    with process(THREADS.format(count=2)) as busy, open_store(f"sqlite:///{tmp_path}/centre.sqlite") as store:
        path = tmp_path / "agent.sock"
        (tmp_path / "journal").mkdir()
        command = [sys.executable, AGENT, path, str(os.getuid()), tmp_path / "journal", libvirtd, str(busy)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as agent:
            assert agent.stdout and agent.stdout.readline() == "ready\n"
            yield Host(agent, AgentClient("h1", path), path, busy, store)
            agent.send_signal(signal.SIGCONT)
            agent.communicate(timeout=20)


def started(call: Callable[[], object]) -> tuple[threading.Thread, list[PinnerError]]:
    """The call in a thread of its own, and the error that it raises."""
    errors: list[PinnerError] = []

    def work() -> None:
        try:
            call()
        except PinnerError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, errors


def only_run(parts: ServiceParts) -> Run:
    (run,) = parts.service.runs("h1", PageRequest(5)).items
    return run


def require_truth(host: Host, parts: ServiceParts) -> str:
    """The state of the only run, after the trail was compared with the host and with the agent's own trail."""
    run = only_run(parts)
    records = [r for r in parts.service.audit(None, None, None, PageRequest(100)).items if r.action.startswith("run.")]
    ends = [record.result for record in records if record.action == "run.end"]
    changes = [record.result for record in records if record.action == "run.change"]
    if host.is_moved():
        assert (run.state, ends, changes) == ("applied", ["applied"], ["done"])
    else:
        assert (run.state, run.error) == ("failed", NEVER_BEGUN)
        assert (ends, changes) == ([f"failed: {NEVER_BEGUN}"], [])
    assert parts.service.verify_audit().ok
    assert host.client.run(run.id).state == run.state
    return run.state


def test_a_stalled_agent_applies_once_it_goes_on(host):
    """The service that asked for the run still waits: nobody closes the run."""
    with closing(host.service()) as parts:
        plan = host.plan(parts)
        with host.stalled():
            thread, errors = started(lambda: parts.service.apply(plan.id, False, ANN))
            time.sleep(6)
            assert host.store.runs.running()[0].state == "running"
            assert not host.is_moved()
        thread.join(20)
        assert errors == []
        list(parts.service.follow(only_run(parts).id))
        assert require_truth(host, parts) == "applied"


def test_the_service_is_restarted_while_its_agent_is_stalled(host):
    """The call of the old service lies in the socket. The new service asks for the run's fate: the call and the
    question reach the agent at the same moment, and either may be first."""
    with closing(host.service()) as old, closing(host.service(timedelta(minutes=1))) as new:
        plan = host.plan(old)
        with host.stalled():
            call, _ = started(lambda: old.service.apply(plan.id, False, ANN))
            deadline = time.monotonic() + 10
            while not host.store.runs.running():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            time.sleep(0.5)
            question, _ = started(new.runs.catch_up)
            time.sleep(0.5)
        question.join(20)
        call.join(20)
        for run in host.store.runs.list("h1", PageRequest(5)).items:
            list(new.service.follow(run.id))
        require_truth(host, new)


def test_a_call_that_arrives_after_its_run_was_closed_changes_nothing(host):
    with closing(host.service()) as old, closing(host.service(timedelta(minutes=1))) as new:
        plan = host.plan(old)
        run = Run("run-late", "apply", "h1", plan.id, "ann", "cli", "running", datetime.now(UTC))
        host.store.runs.add(run)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as late:
            late.connect(str(host.path))
            new.runs.catch_up()
            assert new.service.run("run-late").state == "failed"
            with suppress(EOFError):
                wire.send(late, call="apply", plan=plan, run=run)
            while "alive" in (answer := wire.receive(late)):
                pass
            assert answer["error"]["code"] == RunConflict.code
        assert require_truth(host, new) == "failed"


def test_a_killed_service_whose_call_the_agent_has(host):
    """The agent begins the call of a disconnected caller, or drops it; the next service learns which."""
    with closing(host.service()) as old, closing(host.service(timedelta(minutes=1))) as new:
        plan = host.plan(old)
        run = Run("run-orphan", "apply", "h1", plan.id, "ann", "cli", "running", datetime.now(UTC))
        host.store.runs.add(run, events=[])
        with host.stalled(), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as orphan:
            orphan.connect(str(host.path))
            wire.send(orphan, call="apply", plan=plan, run=run)
        deadline = time.monotonic() + 60
        while new.service.run("run-orphan").state == "running":
            assert time.monotonic() < deadline
            time.sleep(0.05)
        require_truth(host, new)
