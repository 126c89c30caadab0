"""The health and the metrics of a composed service, with a real database and an in-memory host."""

import threading
import time
import uuid
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.fakes.hosted_agent import HostedAgent
from support.hosts import cpus, guest, plain, process, snapshot
from support.server.policy_host import wait_until

from pinner import wiring
from pinner.model.errors import HostUnreachable
from pinner.model.health import AgentHealth, Queue
from pinner.model.plan.request import Request
from pinner.model.policy import Policy
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions
from pinner.service.local import ServiceParts
from pinner.service.reconcile import controller as controller_module
from pinner.service.reconcile.controller import PolicyController
from pinner.store.repositories import open_store
from pinner.worker import Heartbeat

pytestmark = pytest.mark.fault(56)
ANN = Caller("ann", "cli", "req-1")


@pytest.fixture
def agent(tmp_path):
    host = snapshot(plain(8, 2), [guest(1, 2, cpus("0-7"))], [process(90, 60.0, "0-7", "0-7")])
    made = HostedAgent(tmp_path / "agent", host, wiring.now)
    with closing(made.journal):
        yield made


@pytest.fixture
def parts(tmp_path: Path, agent):
    with (
        open_store(f"sqlite:///{tmp_path}/pinner.sqlite") as store,
        closing(ServiceParts({"compute1": agent}, store, wiring.now, lambda: uuid.uuid4().hex[:12], 0.0)) as parts,
    ):
        yield parts


def failing(parts) -> dict[str, str]:
    return {check.name: check.why for check in parts.monitor.readiness().checks if not check.ok}


def samples(parts) -> dict[tuple[str, ...], float]:
    """The metrics by their names and the values of their labels."""
    families = text_string_to_metric_families(parts.monitor.metrics.text().decode())
    return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}


def test_it_is_ready_once_everything_was_checked(parts):
    assert failing(parts) == {"health": "the first check has not ended yet"}
    parts.monitor.check()
    assert parts.monitor.readiness().status == "ready"
    assert {check.name for check in parts.monitor.readiness().checks} >= {"agent", "database", "threads", "queue"}


def test_an_agent_that_does_not_answer_and_a_libvirt_that_hangs(parts, agent, monkeypatch, caplog):
    agent.libvirt_fails = "libvirt has not answered for 61 s"
    parts.monitor.check()
    parts.monitor.check()
    assert failing(parts) == {"libvirt": "libvirt has not answered for 61 s"}
    assert caplog.text.count("not ready: libvirt") == 1, "told once"

    def unreachable():
        raise HostUnreachable("compute1", "no sign of life for 10 s")

    monkeypatch.setattr(agent, "health", unreachable)
    parts.monitor.check()
    assert "no sign of life for 10 s" in failing(parts)["agent"]
    monkeypatch.undo()
    agent.libvirt_fails = ""
    parts.monitor.check()
    assert failing(parts) == {}
    assert "agent is ready again" in caplog.text


def test_a_database_that_cannot_be_read(parts, tmp_path):
    parts.monitor.check()
    with open_store(f"sqlite:///{tmp_path}/other.sqlite") as other:
        pass
    (tmp_path / "other.sqlite").write_bytes(b"no database " * 1000)
    parts.monitor._probe = other.probe
    parts.monitor.check()
    assert "other.sqlite" in failing(parts)["database"]
    assert samples(parts)["pinner_check_ok", "database"] == 0


def test_a_check_that_hangs_is_not_ready(parts, agent, monkeypatch):
    gate = threading.Event()
    now = 1000.0
    monkeypatch.setattr(parts.monitor, "_clock", lambda: now)
    parts.monitor.check()
    assert failing(parts) == {}
    monkeypatch.setattr(agent, "health", lambda: AgentHealth((), int(gate.wait())))
    asking = threading.Thread(target=parts.monitor.check, daemon=True)
    asking.start()
    now += 61
    assert failing(parts) == {"health": "the latest result is 61 s old, because a check hangs"}
    monkeypatch.undo()
    gate.set()
    asking.join()


def test_a_thread_that_has_ended_and_a_full_queue(parts):
    ended = threading.Thread(target=lambda: None, name="controller-events")
    ended.start()
    ended.join()
    parts.monitor._threads = (Heartbeat(ended),)
    parts.monitor.metrics.queue = lambda: Queue(30, 12.0)
    parts.monitor.check()
    told = failing(parts)
    assert told["threads"] == "the thread controller-events has ended"
    assert told["queue"] == "30 requests wait for a thread, the first one for 12 s"


def test_a_host_that_is_not_observed_under_its_policy(parts):
    parts.service.set_policy("compute1", Policy(mode="observe"), ANN)
    parts.monitor._observation_seconds = 0.05
    time.sleep(0.1)
    parts.monitor.check()
    assert "no observation under the policy" in failing(parts)["controller"]
    parts.monitor._observation_seconds = 60.0
    parts.monitor.metrics.reconciled(parts.service.drift("compute1"), 0.08)
    parts.monitor.check()
    assert failing(parts) == {}


def test_the_metrics_of_a_host_under_a_policy(parts, agent, monkeypatch):
    # Threads of other tests of this process may end at any time.
    monkeypatch.setattr(agent, "health", lambda: AgentHealth((), 31))
    parts.service.set_policy("compute1", Policy(mode="enforce"), ANN)
    controller = PolicyController(
        parts.reconciler, "compute1", resync_seconds=60, measure_seconds=60, metrics=parts.monitor.metrics
    )
    controller.start()
    deadline = time.monotonic() + 60
    while not samples(parts).get(("pinner_reconcile_seconds_count", "compute1")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    controller.stop()
    parts.monitor.check()
    found = samples(parts)
    assert found["pinner_runs", "compute1", "applied"] == 1
    assert found["pinner_changes_total", "compute1", "done"] >= 2
    assert found["pinner_observation_seconds_count", "compute1"] >= 1
    assert 0 < found["pinner_reconcile_seconds_sum", "compute1"] < 20
    assert found["pinner_drifts", "compute1"] == 0
    assert found["pinner_unplaced_guests", "compute1"] == 0
    assert found["pinner_backoffs", "compute1"] == 0
    assert found["pinner_database_bytes",] > 100_000
    assert found["pinner_requests_waiting",] == 0
    assert found["pinner_agent_threads", "compute1"] == 31
    assert found["pinner_check_ok", "database"] == 1


def test_a_host_whose_policy_was_deleted_has_no_metrics_of_it(parts, monkeypatch):
    monkeypatch.setattr(controller_module, "POLL_SECONDS", 0.05)
    parts.service.set_policy("compute1", Policy(mode="observe"), ANN)
    controller = PolicyController(
        parts.reconciler, "compute1", resync_seconds=60, measure_seconds=60, metrics=parts.monitor.metrics
    )
    controller.start()
    present = {f"pinner_{name}" for name in ("seconds_since_reconcile", "drifts", "backoffs", "unplaced_guests")}

    def found() -> set[str]:
        return present & {name for name, *_ in samples(parts)}

    try:
        assert wait_until(lambda: found() == present, 60) < 60
        parts.service.delete_policy("compute1", ANN)
        assert wait_until(lambda: not found(), 60) < 60
    finally:
        controller.stop()
    parts.monitor.check()
    # Long after: a policy that is set now has not been late since the start of the server.
    parts.monitor._observation_seconds = 0.05
    time.sleep(0.1)
    parts.monitor.check()
    parts.monitor._observation_seconds = 5.0
    parts.monitor._began -= 60
    parts.service.set_policy("compute1", Policy(mode="observe"), ANN)
    parts.monitor.check()
    assert failing(parts) == {}


def test_no_label_has_the_name_of_a_guest_a_run_or_a_process(parts, agent):
    plan = parts.service.plan("compute1", Request(), None, 0.0, ANN)
    run = parts.service.apply(plan.id, ApplyOptions(), ANN)
    while parts.service.run(run.id).state == "running":
        time.sleep(0.01)
    text = parts.monitor.metrics.text().decode()
    for name in (plan.id, run.id, "ann", agent.host.taken.guests[0].uuid, agent.host.taken.guests[0].name):
        assert name not in text
