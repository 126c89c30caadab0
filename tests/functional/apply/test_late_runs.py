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
from support.server import warm
from support.server.policy_host import NEVER_BUSY, wait_until
from support.system.kernel import THREADS, masks, process

from pinner.agent.socket import wire
from pinner.agent.socket.client import AgentClient
from pinner.model.errors import PinnerError, RunConflict
from pinner.model.page import PageRequest
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.run.audit import Caller
from pinner.model.run.journal import NEVER_BEGUN, ApplyOptions, Run
from pinner.service.local import ServiceParts
from pinner.service.runs import runs
from pinner.store.repositories import Store, open_store

pytestmark = [
    pytest.mark.needs("root", "two_cpus"),
    pytest.mark.fault(55),
]
ANN = Caller("ann", "cli", "req-1")
CPUS = sorted(os.sched_getaffinity(0))
SUPPORT = Path(__file__).parents[2] / "support"
AGENT = """
import sys, threading
from support.server import agent_process
class Endless:
    read = staticmethod(threading.Event().wait)
sys.stdin = Endless
agent_process.REQUEST_SECONDS = agent_process.LIBVIRT_SECONDS = 600.0
agent_process.main(*sys.argv[1:])
"""
"""An agent that runs until it is killed, and never takes a busy machine for a silent caller or a silent libvirt."""


@dataclass
class Host:
    """A real agent, the process that it may move, and a central database."""

    agent: warm.Program
    client: AgentClient
    path: Path
    busy: int
    store: Store
    database: str

    def service(self, ahead: timedelta = timedelta()) -> ServiceParts:
        """A service of its own, as after a restart, whose clock is ahead."""
        now = lambda: datetime.now(UTC) + ahead  # noqa: E731
        return ServiceParts({"h1": self.client}, self.store, now, lambda: uuid.uuid4().hex[:12], 0.0)

    def plan(self, parts: ServiceParts, cpu: int = CPUS[0]) -> Plan:
        """A plan that moves the process to one CPU."""
        request = Request(processes=(str(self.busy),), busy_threshold=NEVER_BUSY, housekeeping=str(cpu))
        return parts.service.plan("h1", request, None, 0.0, ANN)

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """The agent does not run within this block."""
        self.agent.send_signal(signal.SIGSTOP)
        wait_until(lambda: Path(f"/proc/{self.agent.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T", 60)
        try:
            yield
        finally:
            self.agent.send_signal(signal.SIGCONT)

    @contextmanager
    def stopped_controller(self, plan: Plan, when: str) -> Iterator["subprocess.Popen[str]"]:
        """Another controller that applies the plan and has stopped itself; it goes on at the end of this block."""
        command = [sys.executable, SUPPORT / "server/controller_process.py", self.database, self.path, plan.id, when]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as controller:
            try:
                _, status = os.waitpid(controller.pid, os.WUNTRACED)
                assert os.WIFSTOPPED(status)
                yield controller
            finally:
                controller.send_signal(signal.SIGCONT)

    def cpus(self) -> set[str]:
        """The masks of the process's threads."""
        return set(masks(self.busy).values())

    def is_moved(self) -> bool:
        return self.cpus() == {str(CPUS[0])}


@pytest.fixture
def host(libvirtd: str, tmp_path: Path) -> Iterator[Host]:
    database = f"sqlite:///{tmp_path}/centre.sqlite"
    with process(THREADS.format(count=2)) as busy, open_store(database) as store:
        path = tmp_path / "agent.sock"
        (tmp_path / "journal").mkdir()
        output, words = tmp_path / "output", (path, os.getuid(), tmp_path / "journal", libvirtd, busy)
        agent = warm.start(*words, output=output, code=AGENT)
        try:
            wait_until(lambda: output.read_text() == "ready\n" or agent.poll() is not None, 60)
            assert output.read_text() == "ready\n"
            yield Host(agent, AgentClient("h1", path, silence=600.0), path, busy, store, database)
        finally:
            agent.send_signal(signal.SIGCONT)
            agent.terminate()
            agent.wait(60)


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


def test_a_stalled_agent_applies_once_it_goes_on(host, monkeypatch):
    """The service that asked for the run still waits: nobody closes the run."""
    monkeypatch.setattr(runs, "END_SECONDS", 0.5)
    with closing(host.service()) as parts:
        plan = host.plan(parts)
        with host.stalled():
            thread, errors = started(lambda: parts.service.apply(plan.id, ApplyOptions(), ANN))
            time.sleep(1)
            assert host.store.runs.running()[0].state == "running"
            assert not host.is_moved()
        thread.join(60)
        assert errors == []
        list(parts.service.follow(only_run(parts).id))
        assert require_truth(host, parts) == "applied"


def test_the_service_is_restarted_while_its_agent_is_stalled(host):
    """The call of the old service lies in the socket. The new service asks for the run's fate: the call and the
    question reach the agent at the same moment, and either may be first."""
    with closing(host.service()) as old, closing(host.service(timedelta(minutes=1))) as new:
        plan = host.plan(old)
        with host.stalled():
            call, _ = started(lambda: old.service.apply(plan.id, ApplyOptions(), ANN))
            deadline = time.monotonic() + 60
            while not host.store.runs.running():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            time.sleep(0.5)
            question, _ = started(new.runs.catch_up)
            time.sleep(0.5)
        question.join(60)
        call.join(60)
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


def results(parts: ServiceParts, run: str) -> list[tuple[str, str]]:
    """The actions and results of the trail's records about one run, oldest first."""
    records = parts.service.audit("h1", None, None, PageRequest(100)).items
    return sorted((r.action, r.result) for r in records if r.subject.split(":")[0].split(" ")[0] == run)


@pytest.mark.fault(36)
def test_a_controller_that_stopped_before_the_begin_is_refused_after_another_took_over(host):
    """The agent's journal is the fence: it has the stopped controller's run as closed, and refuses its begin."""
    with closing(host.service(timedelta(minutes=1))) as parts:
        late = host.plan(parts)
        with host.stopped_controller(late, "before") as controller:
            (open_run,) = host.store.runs.running()
            assert parts.service.run(open_run.id).error == NEVER_BEGUN
            mine = parts.service.apply(host.plan(parts, CPUS[1]).id, ApplyOptions(), ANN)
            *_, last = parts.service.follow(mine.id)
            assert (last.run.state, host.cpus()) == ("applied", {str(CPUS[1])})
            controller.send_signal(signal.SIGCONT)
            assert controller.communicate(timeout=60)[0] == f"{RunConflict.code}\n"
        assert host.cpus() == {str(CPUS[1])}
        assert host.client.entries(open_run.id) == ()
        assert host.client.run(open_run.id).state == parts.service.run(open_run.id).state == "failed"
        ended = [("run.apply", "started"), ("run.end", f"failed: {NEVER_BEGUN}")]
        assert results(parts, open_run.id) == ended
        assert parts.service.run(mine.id).state == "applied"
        assert parts.service.verify_audit().ok


@pytest.mark.fault(36)
def test_a_controller_that_stopped_during_an_apply_overwrites_nothing_that_another_did(host):
    """The agent ends the run without its controller; another controller rolls it back before the first one goes on."""
    with closing(host.service(timedelta(minutes=1))) as parts:
        before = host.cpus()
        with host.stopped_controller(host.plan(parts), "during") as controller:
            deadline = time.monotonic() + 60
            while only_run(parts).state == "running":
                assert time.monotonic() < deadline
                time.sleep(0.05)
            run = only_run(parts)
            assert (run.state, host.cpus()) == ("applied", {str(CPUS[0])})
            undo = parts.service.rollback(run.id, ANN)
            *_, last = parts.service.follow(undo.id)
            assert (last.run.state, host.cpus()) == ("rolled_back", before)
            recorded = results(parts, run.id)
            controller.send_signal(signal.SIGCONT)
            assert controller.communicate(timeout=60)[0] == "rolled_back\n"
        assert host.cpus() == before
        assert host.client.run(run.id).state == parts.service.run(run.id).state == "rolled_back"
        assert results(parts, run.id) == recorded
        assert parts.service.verify_audit().ok
