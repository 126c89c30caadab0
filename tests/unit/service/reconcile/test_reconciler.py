"""Reconciler on an in-memory host, with the real planner, journal and store."""

from dataclasses import replace

import pytest
from support.fakes.reconciled_host import ALL, ANN, DAEMON, ENFORCE, FREE, HOST, PLACED, VCPU, kernel, meddle, trail
from support.hosts import cpus, guest, plain, process, snapshot
from support.values import NOON

from pinner.model.errors import (
    HostUnreachable,
    NotFound,
    NovaConflict,
    PolicyConflict,
    Refused,
    StalePlan,
    WorsePlan,
)
from pinner.model.page import PageRequest
from pinner.model.plan.request import Request
from pinner.model.policy import Policy
from pinner.model.run.audit import AuditAction, audit_event
from pinner.model.run.journal import ApplyOptions
from pinner.service.hosts.hosts import Hosts


def test_a_policy_is_set_read_and_recorded(service):
    with pytest.raises(NotFound, match="has no policy"):
        service.policy(HOST)
    service.set_policy(HOST, Policy(), ANN)
    wanted = Policy(Request("numa-local", excluded_guests=("g9",)), "propose")
    assert service.set_policy(HOST, wanted, ANN) == wanted == service.policy(HOST)
    first, second = trail(service, "policy.set")
    assert (first.actor, first.before, first.after[:8]) == ("ann", "", "observe:")
    assert second.before == first.after
    assert "g9" in second.after


def test_a_policy_of_an_unknown_strategy_or_host(service):
    with pytest.raises(NotFound, match="strategy"):
        service.set_policy(HOST, Policy(Request("best")), ANN)
    with pytest.raises(NotFound, match="host"):
        service.set_policy("elsewhere", Policy(), ANN)


def test_a_policy_is_set_also_while_the_agent_does_not_answer(service, agent, monkeypatch):
    def unreachable():
        raise HostUnreachable(HOST, "its agent is away")

    monkeypatch.setattr(agent, "publish_policy_set", unreachable)
    service.set_policy(HOST, ENFORCE, ANN)
    assert service.policy(HOST) == ENFORCE


def test_without_a_policy_nothing_is_done(service, reconciler, agent):
    assert reconciler.reconcile(HOST, "resync").drifts == ()
    assert service.drift(HOST).mode is None
    assert kernel(agent) == FREE


def test_observe_reports_drift_and_changes_nothing(service, reconciler, agent):
    service.set_policy(HOST, Policy(), ANN)
    report = reconciler.reconcile(HOST, "started")
    assert (report.mode, len(report.drifts), report.proposed) == ("observe", 4, "")
    assert {drift.cause for drift in report.drifts} == {"arrived", "busy"}
    assert kernel(agent) == FREE
    assert service.drift(HOST).drifts == report.drifts
    reconciler.reconcile(HOST, "resync")
    (recorded,) = trail(service, "drift.found")
    assert (recorded.actor, recorded.origin, recorded.subject) == ("policy", "started", "4 targets")
    assert "process daemon (500): busy" in recorded.result


@pytest.mark.parametrize("mode", ["observe", "propose", "enforce"])
def test_the_plan_of_the_recorded_placement_can_be_read(service, reconciler, agent, mode):
    """Also where no run made the placement: a guest that ends or starts with the right affinities."""
    service.set_policy(HOST, Policy(mode=mode), ANN)
    for guests in ((), (guest(1, 2, ALL),), ()):
        agent.host.taken = replace(agent.host.taken, guests=guests)
        for _ in range(2):
            reconciler.reconcile(HOST, "guest-changed")
            placement = service.drift(HOST).placement
            assert service.plan_by_id(placement).id == placement
    kept = len(trail(service, "plan.create"))
    reconciler.reconcile(HOST, "resync")
    assert len(trail(service, "plan.create")) == kept


def test_busy_processes_are_measured_once_and_then_recognized(service, reconciler, agent):
    service.set_policy(HOST, Policy(), ANN)
    for _ in range(3):
        reconciler.reconcile(HOST, "resync")
    assert [seconds for seconds in agent.host.samples if seconds] == [5.0]
    assert "process" in {drift.target.kind for drift in service.drift(HOST).drifts}


def test_propose_stores_one_plan_for_an_operator(service, reconciler, agent):
    service.set_policy(HOST, Policy(mode="propose"), ANN)
    report = reconciler.reconcile(HOST, "started")
    assert reconciler.reconcile(HOST, "resync").proposed == report.proposed == service.drift(HOST).proposed
    assert [record.actor for record in trail(service, "plan.create")] == ["policy"]
    assert kernel(agent) == FREE
    list(service.follow(service.apply(report.proposed, ApplyOptions(), ANN).id))
    assert kernel(agent) == PLACED
    after = reconciler.reconcile(HOST, "resync")
    assert (after.drifts, after.proposed, after.placement) == ((), "", report.proposed)
    meddle(agent, VCPU, "9")
    again = reconciler.reconcile(HOST, "guest-changed")
    assert [(str(drift.target), drift.cause) for drift in again.drifts] == [("guest g1 vcpu 0", "unknown")]
    assert again.proposed not in ("", report.proposed)
    (change,) = service.plan_by_id(again.proposed).changes
    assert change.reason.startswith("moved by another program; ")


def test_a_proposed_plan_is_replaced_once_a_changed_host_makes_it_stale(service, reconciler, agent):
    service.set_policy(HOST, Policy(Request(), "propose"), ANN)
    first = reconciler.reconcile(HOST, "started").proposed
    kernel_arguments = replace(agent.host.taken.topology.kernel, command_line="ro quiet mitigations=off")
    agent.host.taken = replace(agent.host.taken, topology=replace(agent.host.taken.topology, kernel=kernel_arguments))
    second = reconciler.reconcile(HOST, "resync").proposed
    assert second != first
    assert service.plan_by_id(second).basis.fingerprint == agent.host.taken.topology.fingerprint


def test_enforce_applies_the_plan_and_records_the_cause(service, reconciler, agent):
    service.set_policy(HOST, ENFORCE, ANN)
    report = reconciler.reconcile(HOST, "started")
    assert (report.drifts, report.error) == ((), "")
    assert kernel(agent) == PLACED
    (run,) = service.runs(HOST, PageRequest(5)).items
    assert (run.actor, run.origin, run.state) == ("policy", "started", "applied")
    assert {record.actor for record in trail(service, "run.apply", "run.change", "run.end")} == {"policy"}
    assert service.verify_audit().ok
    assert reconciler.reconcile(HOST, "resync").drifts == ()
    assert len(service.runs(HOST, PageRequest(5)).items) == 1


def test_the_log_says_once_why_a_reconcile_ended(service, reconciler, caplog):
    caplog.set_level("INFO", "pinner.service.reconcile.reconciler")
    for policy in (Policy(), ENFORCE):
        service.set_policy(HOST, policy, ANN)
        for _ in range(3):
            reconciler.reconcile(HOST, "resync")
    (run,) = service.runs(HOST, PageRequest(5)).items
    assert [record.getMessage().removeprefix(f"host {HOST}: ") for record in caplog.records] == [
        "4 changes are left, the policy says observe",
        f"run {run.id} is applied",
        "it is as planned",
    ]


def test_a_restarted_daemon_is_placed_at_once_without_a_measurement(service, reconciler, agent):
    service.set_policy(HOST, ENFORCE, ANN)
    reconciler.reconcile(HOST, "started")
    assert [event.kind for event in reconciler.host_events(HOST, 0, 0.0)] == ["policy-set"]
    assert agent.event_queue.watched == {"daemon"}
    again = process(900, 50.0, "0-15", name="daemon")
    agent.host.taken = replace(agent.host.taken, processes=(replace(again, started=77),))
    agent.host.samples.clear()
    assert reconciler.reconcile(HOST, "process-started 900 daemon").drifts == ()
    assert kernel(agent)["daemon"] == "0-1"
    assert not any(agent.host.samples)
    run = service.runs(HOST, PageRequest(5)).items[0]
    assert (run.origin, len(service.entries(run.id))) == ("process-started 900 daemon", 1)
    assert service.entries(run.id)[0].change.reason.startswith("restarted; ")


def test_a_new_guest_moves_no_other_guest(service, reconciler, agent):
    service.set_policy(HOST, ENFORCE, ANN)
    reconciler.reconcile(HOST, "started")
    agent.host.taken = replace(agent.host.taken, guests=(*agent.host.taken.guests, guest(2, 1, ALL)))
    reconciler.reconcile(HOST, "guest-started")
    run = service.runs(HOST, PageRequest(5)).items[0]
    assert {entry.change.target.name for entry in service.entries(run.id)} == {"g2"}


def test_a_process_named_by_the_policy_is_placed_when_it_starts(service, reconciler, agent):
    service.set_policy(HOST, Policy(Request(processes=("worker", "daemon")), "enforce"), ANN)
    reconciler.reconcile(HOST, "started")
    reconciler.host_events(HOST, 0, 0.0)
    assert agent.event_queue.watched == {"daemon", "worker"}
    late = replace(process(600, 0.0, "0-15", name="worker"), started=77)
    agent.host.taken = replace(agent.host.taken, processes=(*agent.host.taken.processes, late))
    reconciler.reconcile(HOST, "process-started 600 worker")
    run = service.runs(HOST, PageRequest(5)).items[0]
    (entry,) = service.entries(run.id)
    assert entry.change.reason == "newly placed; asked for by name"
    assert agent.host.mask(600) == "0-1"


def test_further_events_of_a_burst_are_collected_without_the_database(service, reconciler, agent, store, monkeypatch):
    service.set_policy(HOST, Policy(Request(processes=("daemon",)), "enforce"), ANN)
    last = reconciler.host_events(HOST, 0, 0.0)[-1].seq
    monkeypatch.setattr(store.policies, "get", lambda _: pytest.fail("the policy is read"))
    assert reconciler.further_events(HOST, last) == ()
    agent.event_queue.publish("process-started", "900", "daemon")
    assert [event.subject for event in reconciler.further_events(HOST, last)] == ["900"]
    assert agent.event_queue.watched == {"daemon"}, "the names to watch stay"


def test_a_newly_busy_process_is_found_by_a_measured_reconcile(service, reconciler, agent):
    service.set_policy(HOST, ENFORCE, ANN)
    reconciler.reconcile(HOST, "started")
    busy = process(600, 30.0, "0-15", name="worker")
    agent.host.taken = replace(agent.host.taken, processes=(*agent.host.taken.processes, busy))
    assert reconciler.reconcile(HOST, "resync").drifts == ()
    assert len(service.runs(HOST, PageRequest(5)).items) == 1
    reconciler.reconcile(HOST, "measured resync", measured=True)
    assert agent.host.mask(600) == "0-1"


def test_a_change_that_the_policy_would_undo_is_refused(service, reconciler, agent):
    free = service.plan(HOST, Request("numa-local"), None, 0.0, ANN)
    own = service.plan(HOST, Request(rebalance=True), None, 0.0, ANN)
    service.set_policy(HOST, ENFORCE, ANN)
    reconciler.reconcile(HOST, "started")
    (run,) = service.runs(HOST, PageRequest(5)).items
    with pytest.raises(PolicyConflict, match=free.id):
        service.apply(free.id, ApplyOptions(), ANN)
    with pytest.raises(PolicyConflict, match=run.id):
        service.rollback(run.id, ANN)
    assert kernel(agent) == PLACED
    list(service.follow(service.apply(own.id, ApplyOptions(), ANN).id))
    service.set_policy(HOST, Policy(mode="observe"), ANN)
    list(service.follow(service.rollback(run.id, ANN).id))
    assert kernel(agent) == FREE
    assert len(service.drift(HOST).drifts) == 4


def test_guests_make_way_for_one_that_nova_pinned(service, reconciler, agent):
    service.set_policy(HOST, ENFORCE, ANN)
    reconciler.reconcile(HOST, "started")
    pinned = guest(2, 2, ALL, pins=["8", "9"], dedicated=True)
    agent.host.taken = replace(agent.host.taken, guests=(*agent.host.taken.guests, pinned), dedicated=cpus("8-11"))
    reconciler.reconcile(HOST, "guest-started")
    now = agent.snapshot(0).guests
    assert [str(vcpu.thread.affinity) for vcpu in now[0].vcpus] == ["4-7,12-15"] * 2
    assert [str(vcpu.thread.affinity) for vcpu in now[1].vcpus] == ["8", "9"]
    assert service.drift(HOST).drifts == ()


def test_a_policy_in_conflict_with_nova_reports_the_conflict(service, reconciler, agent):
    service.set_policy(HOST, Policy(Request(housekeeping="0-3"), "enforce"), ANN)
    agent.host.taken = replace(agent.host.taken, dedicated=cpus("3"))
    report = reconciler.reconcile(HOST, "started")
    assert report.error == "housekeeping 0-3: in conflict with Nova's cpu_dedicated_set 3 (CPUs 3)"
    assert service.runs(HOST, PageRequest(5)).items == ()


@pytest.mark.parametrize(
    "refusal",
    [
        StalePlan("plan", ("a thread moved",)),
        NovaConflict("vcpu 0", "Nova's cpu_dedicated_set 8", "8"),
        Refused("vcpu 0", "CPUs 8", "8 is in the restricted affinity of process pmd (500)"),
    ],
)
def test_a_plan_that_became_stale_is_made_again(service, reconciler, agent, monkeypatch, refusal):
    service.set_policy(HOST, ENFORCE, ANN)
    refusals = [refusal] * 2
    apply = agent.apply

    def refuse(*call):
        if refusals:
            raise refusals.pop()
        return apply(*call)

    monkeypatch.setattr(agent, "apply", refuse)
    assert reconciler.reconcile(HOST, "started").error == ""
    assert kernel(agent) == PLACED
    assert [run.state for run in service.runs(HOST, PageRequest(9)).items] == ["applied", "failed", "failed"]


@pytest.mark.parametrize(
    ("policy", "guest"),
    [(Policy(), FREE), (Policy(Request(excluded_guests=("g1",)), "enforce"), FREE), (ENFORCE, PLACED)],
)
def test_a_policy_set_during_a_reconcile_wins(service, reconciler, agent, monkeypatch, policy, guest):
    service.set_policy(HOST, ENFORCE, ANN)
    take, another = Hosts.snapshot, [policy]

    def snapshot(hosts, host, seconds):
        taken = take(hosts, host, seconds)
        if another and not seconds:
            service.set_policy(HOST, another.pop(), ANN)
        return taken

    monkeypatch.setattr(Hosts, "snapshot", snapshot)
    reconciler.reconcile(HOST, "started")
    found = kernel(agent)
    found.pop("daemon")
    assert found.items() <= guest.items()


def test_a_failed_run_is_reported_and_retried(service, reconciler, agent, clock):
    service.set_policy(HOST, ENFORCE, ANN)
    agent.host.break_at = 2
    drifts = reconciler.reconcile(HOST, "started").drifts
    assert {(drift.cause, "the agent broke" in drift.detail) for drift in drifts} == {("failed", True)}
    clock.at = max(drift.backoff_until for drift in drifts)
    assert reconciler.reconcile(HOST, "resync").error == ""
    assert kernel(agent) == PLACED


def test_a_host_that_does_not_answer(service, reconciler, agent, monkeypatch):
    service.set_policy(HOST, ENFORCE, ANN)

    def silent(_seconds):
        raise HostUnreachable(HOST, "it does not answer")

    monkeypatch.setattr(agent, "snapshot", silent)
    with pytest.raises(HostUnreachable):
        reconciler.reconcile(HOST, "resync")


def test_a_policy_that_became_impossible_reports_why(reconciler, agent, store):
    """A policy with a CPU that the host had when the policy was set."""
    policy = Policy(Request(housekeeping="99"), "enforce")
    store.policies.put(HOST, policy, NOON, audit_event(ANN, NOON, AuditAction.POLICY_SET, HOST, HOST, "done"))
    report = reconciler.reconcile(HOST, "resync")
    assert "99 is absent" in report.error
    assert kernel(agent) == FREE


def test_a_blocked_policy_reports_why_and_lists_the_unplaced_guest(service, reconciler, agent):
    service.set_policy(HOST, Policy(Request("isolated"), "enforce"), ANN)
    report = reconciler.reconcile(HOST, "resync")
    assert "not isolated" in report.error
    assert [left.label for left in report.unplaced] == ["guest g1"]
    assert kernel(agent) == FREE


@pytest.mark.parametrize("mode", ["observe", "propose", "enforce"])
def test_a_blocked_plan_is_neither_drift_nor_proposed_because_no_run_can_make_its_changes(
    service, reconciler, agent, mode
):
    """The busy daemon has never been placed under this policy, and it cannot be while the plan is blocked."""
    service.set_policy(HOST, Policy(Request("isolated"), mode), ANN)
    for cause in ("started", "resync"):
        report = reconciler.reconcile(HOST, cause)
        assert (report.drifts, report.proposed) == ((), "")
        assert "not isolated" in report.error
    assert service.drift(HOST).drifts == ()
    assert [seconds for seconds in agent.host.samples if seconds] == [5.0]
    assert kernel(agent) == FREE


def test_a_placed_target_that_moves_while_the_plan_is_blocked_is_drift(service, reconciler, agent):
    """An alarm: pinner placed the target and cannot place it again."""
    isolated = snapshot(plain(16, isolated="4-15"), [guest(1, 2, ALL)], [DAEMON])
    agent.host.taken = isolated
    service.set_policy(HOST, Policy(Request("isolated"), "enforce"), ANN)
    assert reconciler.reconcile(HOST, "started").drifts == ()
    agent.host.taken = replace(agent.host.taken, topology=plain(16))
    meddle(agent, 500, "9")
    for _ in range(2):
        report = reconciler.reconcile(HOST, "resync")
        assert [str(drift.target) for drift in report.drifts] == ["process daemon (500)"]
        assert "not isolated" in report.error


WORSE = Policy(Request(housekeeping="0", emulator="1-2"), "enforce")
"""One CPU for daemons that use eight."""


@pytest.mark.fault(51)
def test_a_plan_that_makes_the_objective_worse_is_reported_once_and_not_applied(service, reconciler, agent):
    heavy = process(500, 800.0, "0-15", "0-15", name="daemon")
    agent.host.taken = replace(agent.host.taken, processes=(heavy,))
    service.set_policy(HOST, WORSE, ANN)
    for _ in range(3):
        report = reconciler.reconcile(HOST, "resync")
        assert "is not applied: the objective gets worse: tier 6" in report.error
        assert "host_overload 0.00 -> 7.00 CPUs" in report.error
        assert report.drifts
        assert service.drift(HOST).error
    assert kernel(agent) == FREE
    (found,) = trail(service, "drift.found")
    assert found.result.endswith(f"; {report.error}")
    assert not trail(service, "run.apply")
    made = service.plan(HOST, WORSE.request, None, None, ANN)
    service.set_policy(HOST, replace(WORSE, mode="observe"), ANN)
    with pytest.raises(WorsePlan):
        service.apply(made.id, ApplyOptions(), ANN)
    assert service.apply(made.id, ApplyOptions(allow_worse=True), ANN).id
