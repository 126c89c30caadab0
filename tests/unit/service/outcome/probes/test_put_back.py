"""After a probe, and after a failure or a kill within it, the placement is as before."""

import threading
import time
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest
from support.fakes.probed_host import ANN, BEFORE_A_SWITCH, ORDER, WEB, ProbedHost, probed, records
from support.values import NOON, busy_host, make_change

from pinner.model.errors import HostBusy, HostUnreachable
from pinner.model.outcome.outcome import ProbeOptions
from pinner.model.page import PageRequest
from pinner.model.plan.request import Request
from pinner.model.policy import Policy
from pinner.model.run.audit import AuditAction, audit_event
from pinner.service.local import ServiceParts
from pinner.service.outcome import probes
from pinner.service.outcome.probe_execution import put_back


@pytest.mark.parametrize("wait", range(1, 8))
def test_a_cancelled_probe_puts_the_placement_back(parts, host, plan, wait):
    def cancel():
        (running,) = parts.service._store.probes.running("h1")
        parts.service.cancel_probe(running.id, replace(ANN, actor="bob"))

    host.at_wait[wait] = cancel
    found = probed(parts, plan)
    assert (found.state, found.why, found.outcome, found.left) == ("cancelled", "cancelled by bob", None, "")
    assert not host.is_placed
    assert records(parts, "probe.")[-1].result == "cancelled: cancelled by bob"
    assert parts.service.cancel_probe(found.id, ANN) == found


def test_a_probe_whose_plan_fails_ends_and_puts_the_placement_back(parts, host, plan):
    def fail():
        host.agent.host.failing = {WEB: "the kernel refused"}

    host.at_wait[BEFORE_A_SWITCH] = fail
    found = probed(parts, plan)
    assert (found.state, found.outcome, found.left, host.is_placed) == ("failed", None, "", False)
    assert "the kernel refused" in found.why


def test_a_probe_whose_agent_breaks_within_a_run_puts_the_placement_back(parts, host, plan):
    # Refused from now on, while the host is as planned.
    first = ORDER.index("planned")

    def refuse():
        host.agent.host.refusal = HostUnreachable("h1", "its agent does not answer")

    host.at_wait[2 * first + 2] = refuse
    found = probed(parts, plan)
    assert (found.state, found.left, host.is_placed) == ("failed", "", False)
    assert "does not answer" in found.why


def test_a_server_that_ends_puts_the_placement_back(parts, host, plan):
    first = ORDER.index("planned")

    def end():
        host.seen = host.is_placed
        for stop in parts.probes._stops.values():
            stop.order("interrupted", "the server ended")

    host.at_wait[2 * first + 2] = end
    found = probed(parts, plan)
    assert (found.state, found.why, host.seen, host.is_placed) == ("interrupted", "the server ended", True, False)


def test_a_switch_waits_for_another_run_on_the_host(parts, host, plan):
    busy = HostBusy("h1", "run-9")
    host.at_wait = {
        BEFORE_A_SWITCH: lambda: setattr(host.agent.host, "refusal", busy),
        BEFORE_A_SWITCH + 3: lambda: setattr(host.agent.host, "refusal", None),
    }
    found = probed(parts, plan)
    assert (found.state, host.is_placed) == ("ended", False)
    assert found.ended_at - found.started_at == timedelta(seconds=found.total_seconds + 3)


def test_a_switch_does_not_wait_for_ever(parts, host, plan):
    host.at_wait[2] = lambda: setattr(host.agent.host, "refusal", HostBusy("h1", "run-9"))
    found = probed(parts, plan)
    assert (found.state, host.is_placed) == ("failed", False)
    assert "run run-9 is working on host h1" in found.why


def test_a_process_that_ended_does_not_end_the_probe(parts, host, store):
    busy = host.agent.host.taken
    host.agent.host.taken = replace(busy, processes=busy_host().processes[1:2])
    plan = host.plan(store, also=(make_change(110, after="2", threads=2),))
    host.at_wait[2 * ORDER.index("planned") + 2] = lambda: host.end("process")
    found = probed(parts, plan)
    assert (found.state, found.left, host.is_placed) == ("ended", "", False)
    states = {run.state for run in parts.service.runs("h1", PageRequest()).items if run.kind == "rollback"}
    assert states == {"rolled_back", "rolled_back_partly"}


def test_a_change_that_cannot_be_undone_ends_the_probe_and_is_named(parts, host, plan):
    host.at_wait[2 * ORDER.index("planned") + 2] = lambda: setattr(host.agent.host, "failing", {WEB: "refused"})
    found = probed(parts, plan)
    assert (found.state, found.outcome) == ("failed", None)
    assert "the placement is not as before" in found.why
    assert parts.service.run(found.left).kind == "apply"


def test_a_placement_that_the_agent_cannot_put_back_now_is_put_back_by_a_later_pass(parts, host, plan, monkeypatch):
    def refuse(*_):
        raise HostUnreachable("h1", "its agent does not answer")

    def lose():
        monkeypatch.setattr(host.agent, "rollback", refuse)
        (running,) = parts.service._store.probes.running("h1")
        parts.service.cancel_probe(running.id, ANN)

    host.at_wait[BEFORE_A_SWITCH + 2] = lose
    found = probed(parts, plan)
    assert (found.state, found.why, host.is_placed) == ("running", "cancelled by ann", True)
    with pytest.raises(HostUnreachable):
        parts.probes.make_pass()
    monkeypatch.undo()
    parts.probes.make_pass()
    found = parts.service.probe_by_id(found.id)
    assert (found.state, found.why, found.left, host.is_placed) == ("interrupted", "cancelled by ann", "", False)


def test_the_end_of_the_server_waits_until_the_placement_is_back(host, store, plan):
    waiting = threading.Event()

    def hold(event, seconds):
        if event.is_set() or not host.is_placed:
            return ProbedHost.wait(host, event, seconds)
        waiting.set()
        return event.wait(60)

    host.wait = hold
    with host.compose(store) as parts:
        probe = parts.service.probe(plan.id, ProbeOptions(6, 30), ANN)
        assert waiting.wait(60)
        assert host.is_placed
    assert (store.probes.get(probe.id).state, host.is_placed) == ("interrupted", False)


class Killed(BaseException):
    """The process ends here."""


def killed(parts, host, plan, wait):
    """A probe whose process dies at the end of a wait: nothing runs after that."""

    def die():
        host.at_wait.clear()
        raise Killed

    host.at_wait[wait] = die
    return probed(parts, plan)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("wait", [1, 2, 3, 4, 5, 6])
def test_after_a_kill_the_next_server_puts_the_placement_back(parts, host, store, plan, wait):
    left = killed(parts, host, plan, wait)
    assert left.state == "running"
    placed = host.is_placed
    with host.compose(store) as again:
        again.probes.make_pass()
        found = again.service.probe_by_id(left.id)
        assert (found.state, found.why) == ("interrupted", "the server ended before the probe")
        assert (found.outcome, found.left, host.is_placed) == (None, "", False)
        assert [each.action for each in records(again, "probe.")] == ["probe.begin", "probe.end"]
        again.probes.make_pass()
        runs = again.service.runs("h1", PageRequest()).items
        assert runs[0].kind == "rollback" if placed else True
        assert probed(again, plan).state == "ended"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_probe_that_cannot_be_put_back_does_not_keep_those_of_later_hosts(
    parts, host, store, plan, monkeypatch, caplog
):
    left = killed(parts, host, plan, BEFORE_A_SWITCH + 2)
    store.probes.add(
        replace(left, id="probe-0", host="h0"), audit_event(ANN, NOON, AuditAction.PROBE_BEGIN, "h0", "", "")
    )

    def end(runs, probe):
        if probe.host == "h0":
            raise HostUnreachable("h0", "its agent does not answer")
        return put_back(runs, probe)

    monkeypatch.setattr(probes, "put_back", end)
    agents = {"h0": host.agent, "h1": host.agent}
    with closing(ServiceParts(agents, store, lambda: host.at, lambda: "new", 0.0)) as again:
        for _ in range(3):
            with pytest.raises(HostUnreachable):
                again.probes.make_pass()
        assert (again.service.probe_by_id(left.id).state, host.is_placed) == ("interrupted", False)
    assert [each.id for each in store.probes.running("h0")] == ["probe-0"]
    assert len([each for each in caplog.records if "was interrupted" in each.getMessage()]) == 1


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_server_ends_interrupted_probes_at_its_start(parts, host, store, plan):
    left = killed(parts, host, plan, BEFORE_A_SWITCH + 2)
    assert host.is_placed
    with host.compose(store) as again:
        again.probes.passes.start()
        while store.probes.running("h1"):
            time.sleep(0.01)
        assert (again.service.probe_by_id(left.id).state, host.is_placed) == ("interrupted", False)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_placement_that_cannot_be_put_back_is_named(parts, host, store, plan):
    first = ORDER.index("planned")
    left = killed(parts, host, plan, 2 * first + 2)
    assert host.is_placed
    event = audit_event(ANN, NOON, AuditAction.POLICY_SET, "h1", "h1", "done")
    store.policies.put("h1", Policy(Request(), "enforce"), NOON, event, ("",))
    with host.compose(store) as again:
        again.probes.make_pass()
        found = again.service.probe_by_id(left.id)
        assert (found.state, host.is_placed) == ("failed", True)
        assert "its policy is enforced" in found.why
        assert again.service.run(found.left).state == "applied"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_after_a_kill_within_a_run_the_placement_is_put_back_when_the_run_has_ended(parts, host, store, plan):
    """The agent goes on with the run after the server has died."""
    begun = threading.Event()

    def hold():
        host.agent.host.gate = threading.Semaphore(0)
        begun.set()

    host.at_wait[BEFORE_A_SWITCH] = hold
    probe = parts.service.probe(plan.id, ProbeOptions(6, 30), ANN)
    assert begun.wait(60)
    while not (running := store.runs.running()):
        time.sleep(0.01)
    stopped = parts.probes._stops[probe.id]
    with host.compose(store) as again:
        with pytest.raises(HostBusy) as busy:
            again.probes.make_pass()
        assert busy.value.details["run"] == running[0].id
        assert again.service.probe_by_id(probe.id).state == "running"
        stopped.order("interrupted", "the server ended")
        for _ in range(100):
            host.agent.host.gate.release()
        parts.probes.wait(probe.id)
        again.probes.make_pass()
        assert (again.service.probe_by_id(probe.id).state, host.is_placed) == ("interrupted", False)
