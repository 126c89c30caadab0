"""Reconciler on an in-memory host, with the real planner, journal and store."""

import uuid
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.hosts import KERNEL, cpus, guest, plain, process, snapshot, with_caches
from support.values import MEMBER, NOON

from pinner.model.change import AffinityChange, ThreadMask
from pinner.model.errors import (
    ApplyFailed,
    HostUnreachable,
    NotFound,
    NovaConflict,
    PolicyConflict,
    Refused,
    RunConflict,
    StalePlan,
)
from pinner.model.guest.guest import Cgroup
from pinner.model.page import PageRequest
from pinner.model.plan.request import Request
from pinner.model.policy import BASE_DELAY, FREE_RETRIES, MAX_DELAY, Policy
from pinner.model.run.audit import AuditAction, Caller, audit_event
from pinner.model.run.journal import ApplyOptions
from pinner.service.hosts.hosts import Hosts
from pinner.service.local import ServiceParts

ANN = Caller("ann", "10.0.0.1", "req-1")
ALL = cpus("0-15")
DAEMON = process(500, 50.0, "0-15", "0-15", name="daemon")
ENFORCE = Policy(Request(), "enforce")
HOST = "compute1"


@pytest.fixture
def agent(tmp_path, clock):
    """Housekeeping 0-1, emulators 2-3, vCPUs 4-15."""
    made = HostedAgent(tmp_path / "agent", snapshot(plain(16), [guest(1, 2, ALL)], [DAEMON]), clock)
    made.host.needs_sample = True
    yield made
    made.journal.close()


@pytest.fixture
def parts(store, agent, clock):
    with closing(ServiceParts({HOST: agent}, store, clock, lambda: uuid.uuid4().hex[:12], 5.0)) as made:
        yield made


def kernel(agent):
    """The affinities of the threads of the guest and of the daemon."""
    now = agent.snapshot(0)
    threads = [thread for each in now.guests for thread in (*each.emulator.threads, *(v.thread for v in each.vcpus))]
    return {thread.name: str(thread.affinity) for thread in (*threads, *now.processes[0].threads)}


PLACED = {"qemu": "2-3", "worker": "2-3", "CPU 0/KVM": "4-15", "CPU 1/KVM": "4-15", "daemon": "0-1"}
FREE = dict.fromkeys(PLACED, "0-15")


def trail(service, *actions):
    records = reversed(service.audit(None, None, None, PageRequest(200)).items)
    return [record for record in records if record.action in actions]


def meddle(agent, tid, mask):
    """Another program moves a thread."""
    agent.host.move(tid, mask)


VCPU = 11_010


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


def _vcpus(agent):
    return [target for each in agent.host.taken.guests for target in each.threads_by_target if target.kind == "vcpu"]


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


def test_repeated_drift_is_backed_off_and_recorded(service, reconciler, agent, clock):
    service.set_policy(HOST, ENFORCE, ANN)
    reconciler.reconcile(HOST, "started")
    for _ in range(FREE_RETRIES):
        meddle(agent, VCPU, "9")
        assert reconciler.reconcile(HOST, "guest-changed").drifts == ()
    meddle(agent, VCPU, "9")
    meddle(agent, VCPU + 1, "9")
    runs = len(service.runs(HOST, PageRequest(50)).items)
    (drift,) = reconciler.reconcile(HOST, "guest-changed").drifts
    assert (drift.target.part, drift.times) == (0, FREE_RETRIES)
    assert drift.backoff_until is not None
    assert len(service.runs(HOST, PageRequest(50)).items) == runs + 1, "the other one was put back"
    assert kernel(agent)["CPU 0/KVM"] == "9"
    assert service.drift(HOST).drifts == (drift,)
    (noted,) = trail(service, "drift.backoff")
    assert noted.subject == "guest g1 vcpu 0"
    assert noted.result.endswith(f"skipped until {drift.backoff_until.isoformat(timespec='seconds')}")

    clock.at += BASE_DELAY
    assert reconciler.reconcile(HOST, "resync").drifts == ()
    assert kernel(agent) == PLACED
    meddle(agent, VCPU, "9")
    (again,) = reconciler.reconcile(HOST, "guest-changed").drifts
    assert again.backoff_until - clock.at > BASE_DELAY, "twice as long"


def test_restarts_cause_no_backoff(service, reconciler, agent):
    service.set_policy(HOST, ENFORCE, ANN)
    reconciler.reconcile(HOST, "started")
    for number in range(3 * FREE_RETRIES):
        again = replace(process(900 + number, 0.0, "0-15", name="daemon"), started=77 + number)
        agent.host.taken = replace(agent.host.taken, processes=(again,))
        assert reconciler.reconcile(HOST, "process-started").drifts == ()
    assert kernel(agent)["daemon"] == "0-1"


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


@pytest.mark.fault(55)
@pytest.mark.parametrize("step", [-timedelta(days=1), -timedelta(hours=1), timedelta(hours=1), timedelta(days=400)])
def test_a_clock_that_is_set_reverts_no_rebalance_of_an_operator(service, reconciler, agent, clock, step):
    """The numbers of the runs say which placement is the newest, not their times."""
    agent.host.taken = snapshot(plain(16, isolated="8-15"), [guest(1, 2, cpus("0-7")), guest(2, 2, cpus("0-7"))])
    service.set_policy(HOST, Policy(Request("isolated"), "enforce"), ANN)
    reconciler.reconcile(HOST, "started")
    rebalance = service.plan(HOST, Request("isolated", rebalance=True), None, 0.0, ANN)
    after = {target: cpus(mask) for target, mask in zip(_vcpus(agent), ("14", "15"), strict=False)}
    changes = tuple(
        AffinityChange(target, (ThreadMask(VCPU + n, 7, cpus(agent.host.mask(VCPU + n))),), mask, "so")
        for n, (target, mask) in enumerate(after.items())
    )
    wanted = tuple(replace(want, cpus=after.get(want.target, want.cpus)) for want in rebalance.wanted)
    moved = replace(rebalance, id="plan-moved", changes=changes, wanted=wanted)
    reconciler._store.plans.add(moved, NOON)
    clock.at += step
    list(service.follow(service.apply(moved.id, ApplyOptions(), ANN).id))
    assert [agent.host.mask(tid) for tid in (VCPU, VCPU + 1)] == ["14", "15"]
    for _ in range(2):
        assert reconciler.reconcile(HOST, "resync").drifts == ()
    assert [agent.host.mask(tid) for tid in (VCPU, VCPU + 1)] == ["14", "15"]


@pytest.mark.fault(55)
@pytest.mark.parametrize("step", [-timedelta(days=1), timedelta(days=1)])
def test_a_clock_that_is_set_leaves_no_target_alone(service, reconciler, agent, clock, step):
    service.set_policy(HOST, ENFORCE, ANN)
    reconciler.reconcile(HOST, "started")
    for _ in range(FREE_RETRIES):
        meddle(agent, VCPU, "9")
        reconciler.reconcile(HOST, "guest-changed")
    meddle(agent, VCPU, "9")
    clock.at += step
    reconciler.reconcile(HOST, "guest-changed")
    clock.at += BASE_DELAY
    assert reconciler.reconcile(HOST, "resync").drifts == ()
    assert kernel(agent) == PLACED


@pytest.mark.fault(55)
def test_a_placement_of_an_earlier_boot_is_placed_again_as_new(service, reconciler, agent):
    """After the restart every process has the id and start time of a placed one, and is another one."""
    restarted = agent.host.taken
    agent.host.taken = replace(restarted, boot="boot-1")
    service.set_policy(HOST, ENFORCE, ANN)
    reconciler.reconcile(HOST, "started")
    assert kernel(agent) == PLACED
    other = process(500, 0.0, "7", "7", name="other", reasons=["restricted"] * 2)
    daemon = replace(process(501, 0.0, "0-15", name="daemon"), started=4)
    agent.host.taken = replace(restarted, boot="boot-2", processes=(other, daemon))
    causes = {str(drift.target): drift.cause for drift in service.drift(HOST).drifts}
    assert causes["guest g1 vcpu 0"] == "arrived"
    assert reconciler.reconcile(HOST, "started").drifts == ()
    assert agent.host.mask(500) == "7", "the restricted process is not the placed one"
    assert agent.host.mask(501) == "0-1", "the daemon is the placed one, in a new process"
    stored, _ = reconciler._store.placements.get(HOST)
    assert stored.boot == "boot-2"
    assert reconciler.reconcile(HOST, "resync").drifts == ()


def test_a_policy_with_another_request_makes_a_new_placement(service, reconciler, agent):
    service.set_policy(HOST, ENFORCE, ANN)
    reconciler.reconcile(HOST, "started")
    service.set_policy(HOST, Policy(Request(housekeeping="5"), "enforce"), ANN)
    reconciler.reconcile(HOST, "policy set")
    assert kernel(agent)["daemon"] == "5"


def test_drift_from_an_applied_plan_without_a_policy(service, agent):
    made = service.plan(HOST, Request(), None, 5.0, ANN)
    run = service.apply(made.id, ApplyOptions(), ANN)
    list(service.follow(run.id))
    assert service.drift(HOST).placement == made.id
    meddle(agent, VCPU, "9")
    agent.host.cause = "libvirt"
    report = service.drift(HOST)
    assert [(str(drift.target), drift.cause) for drift in report.drifts] == [("guest g1 vcpu 0", "libvirt")]
    list(service.follow(service.rollback(run.id, ANN).id))
    assert service.drift(HOST).placement == ""


def test_drift_after_a_rollback_is_measured_against_the_run_before(service, agent):
    plans, runs = [], []
    for housekeeping in ("0", "1"):
        plans.append(service.plan(HOST, Request(housekeeping=housekeeping), None, 5.0, ANN))
        runs.append(service.apply(plans[-1].id, ApplyOptions(), ANN))
        list(service.follow(runs[-1].id))
        assert service.drift(HOST).placement == plans[-1].id
    list(service.follow(service.rollback(runs[1].id, ANN).id))
    assert service.drift(HOST).placement == plans[0].id


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


def test_the_placement_outlives_the_server(service, reconciler, agent, store, clock):
    service.set_policy(HOST, ENFORCE, ANN)
    reconciler.reconcile(HOST, "started")
    with closing(ServiceParts({HOST: agent}, store, clock, lambda: uuid.uuid4().hex[:12], 5.0)) as later:
        agent.host.samples.clear()
        agent.host.taken = replace(agent.host.taken, processes=())
        again = replace(process(900, 0.0, "0-15", name="daemon"), started=77)
        agent.host.taken = replace(agent.host.taken, processes=(again,))
        assert later.reconciler.reconcile(HOST, "started").drifts == ()
        assert not any(agent.host.samples)
        assert agent.host.mask(900) == "0-1"


@pytest.mark.parametrize("name", ["g1", "00000000-0000-4000-8000-000000000001"])
def test_a_guest_is_marked_by_name_or_uuid(service, agent, name):
    found = service.set_excluded(HOST, name, True, ANN)
    assert (found.name, found.excluded) == ("g1", True)
    assert agent.host.marked == {found.uuid}
    service.set_excluded(HOST, name, False, ANN)
    results = [record.result for record in trail(service, "guest.exclude")]
    assert results == ["excluded: started", "excluded", "included: started", "included"]
    with pytest.raises(NotFound, match="known: g1"):
        service.set_excluded(HOST, "g7", True, ANN)


@pytest.mark.fault(60)
def test_a_mark_that_the_agent_refuses_is_recorded_as_failed(service, agent, monkeypatch):
    """The record is stored before the agent is asked. Both trails still agree."""

    def refuse(_guest, **_):
        raise HostUnreachable(HOST, "no answer")

    monkeypatch.setattr(agent, "set_excluded", refuse)
    with pytest.raises(HostUnreachable):
        service.set_excluded(HOST, "g1", True, ANN)
    records = [record.result for record in trail(service, "guest.exclude")]
    assert records == ["excluded: started", "excluded: failed, host_unreachable"]
    assert service.verify_audit(None).result == "intact"


@pytest.mark.fault(67)
@pytest.mark.parametrize("reached", [False, True], ids=["before the agent is asked", "after the agent has done it"])
def test_a_server_that_is_killed_while_it_marks_a_guest_leaves_trails_that_agree(
    parts, service, agent, monkeypatch, reached
):
    service.set_excluded(HOST, "g1", False, ANN)
    parts.audit_heads.exchange(HOST)  # from now on the agent vouches for each record
    mark = agent.set_excluded

    def die(guest, *, excluded):
        if reached:
            mark(guest, excluded=excluded)
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(agent, "set_excluded", die)
        with pytest.raises(SystemExit):
            service.set_excluded(HOST, "g1", True, ANN)
    assert service.verify_audit(None).result == "intact"
    service.set_excluded(HOST, "g1", True, ANN)
    assert service.verify_audit(None).result == "intact"


def test_a_mark_that_fails_at_the_agent_is_recorded_in_both_trails(parts, service, agent):
    service.set_excluded(HOST, "g1", False, ANN)
    parts.audit_heads.exchange(HOST)
    agent.host.mark_failure = ApplyFailed("guest g1", "libvirt: no room")
    with pytest.raises(ApplyFailed):
        service.set_excluded(HOST, "g1", True, ANN)
    assert service.verify_audit(None).result == "intact"
    agent.host.mark_failure = None
    service.set_excluded(HOST, "g1", True, ANN)
    assert service.verify_audit(None).result == "intact"


@pytest.mark.parametrize("mode", ["observe", "propose"])
def test_drift_that_comes_and_goes_does_not_fill_the_audit_trail(service, reconciler, agent, mode):
    service.set_policy(HOST, Policy(mode="enforce"), ANN)
    reconciler.reconcile(HOST, "started")
    service.set_policy(HOST, Policy(mode=mode), ANN)
    for _ in range(20):
        meddle(agent, VCPU, "9")
        (drift,) = reconciler.reconcile(HOST, "guest-changed").drifts
        meddle(agent, VCPU, "4-15")
        assert reconciler.reconcile(HOST, "guest-changed").drifts == ()
    assert len(trail(service, "drift.found")) == FREE_RETRIES
    assert len(trail(service, "plan.create")) <= 1 + FREE_RETRIES
    assert drift.backoff_until is not None


@pytest.fixture
def two_guests(agent):
    """Another guest, g2, whose changes fail."""
    agent.host.taken = replace(agent.host.taken, guests=(*agent.host.taken.guests, guest(2, 1, ALL)))
    agent.host.failing = {agent.host.taken.guests[1].uuid: "no answer from libvirt within 1 s"}
    return agent


def first_guest(agent):
    """The affinities of the threads of g1 and of the daemon."""
    now = agent.snapshot(0)
    threads = (*now.guests[0].emulator.threads, *(vcpu.thread for vcpu in now.guests[0].vcpus))
    return {thread.name: str(thread.affinity) for thread in (*threads, *now.processes[0].threads)}


def runs_of(service):
    return service.runs(HOST, PageRequest(99)).items


@pytest.mark.fault(47)
def test_a_guest_that_hangs_delays_no_other_and_backs_off(service, reconciler, two_guests, clock):
    agent = two_guests
    service.set_policy(HOST, ENFORCE, ANN)
    report = reconciler.reconcile(HOST, "started")
    assert first_guest(agent) == PLACED
    (run,) = runs_of(service)
    assert (run.state, report.error) == ("applied_partly", f"run {run.id} is applied_partly: {run.error}")
    hung = f"guest g2 emulator: {agent.host.failing[agent.host.taken.guests[1].uuid]}"
    (until,) = {drift.backoff_until for drift in report.drifts}
    assert timedelta() < until - clock.at <= BASE_DELAY
    assert {
        (drift.target.name, drift.cause, drift.detail, drift.times, drift.backoff_until) for drift in report.drifts
    } == {("g2", "failed", hung, 1, until)}
    for _ in range(5):
        assert reconciler.reconcile(HOST, "guest-changed").error == ""
    assert runs_of(service) == (run,), "it is not tried again"
    assert service.drift(HOST).drifts == reconciler.reconcile(HOST, "resync").drifts != ()
    (noted,) = trail(service, "drift.backoff")
    assert noted.subject == "guest g2"
    assert noted.result == f"attempt 1 failed, skipped until {until.isoformat(timespec='seconds')}: {hung}"

    for attempt in range(2, 14):
        clock.at = max(drift.backoff_until for drift in service.drift(HOST).drifts)
        report = reconciler.reconcile(HOST, "resync")
        assert (len(runs_of(service)), {drift.times for drift in report.drifts}) == (attempt, {attempt})
        assert first_guest(agent) == PLACED
        assert all(drift.backoff_until <= clock.at + MAX_DELAY for drift in report.drifts)
    assert len(trail(service, "drift.backoff")) == 13

    agent.host.failing.clear()
    clock.at = max(drift.backoff_until for drift in report.drifts)
    assert reconciler.reconcile(HOST, "resync").drifts == ()
    assert agent.host.mask(12_010) == "4-15"
    assert service.verify_audit().ok


@pytest.mark.fault(47)
def test_another_guest_starts_while_one_hangs(service, reconciler, two_guests):
    agent = two_guests
    service.set_policy(HOST, ENFORCE, ANN)
    reconciler.reconcile(HOST, "started")
    agent.host.taken = replace(agent.host.taken, guests=(*agent.host.taken.guests, guest(3, 1, ALL)))
    report = reconciler.reconcile(HOST, "guest-started")
    run = runs_of(service)[0]
    assert (run.state, {entry.change.target.name for entry in service.entries(run.id)}) == ("applied", {"g3"})
    assert {(drift.target.name, drift.cause) for drift in report.drifts} == {("g2", "failed")}


def test_while_a_change_of_the_host_itself_backs_off_no_guest_is_changed(service, reconciler, agent):
    """The other changes need it."""
    kernel_threads = replace(KERNEL, unbound=ALL)
    scopes = (Cgroup("machine.slice", MEMBER), Cgroup("machine.slice/1.scope", MEMBER))
    agent.host.taken = snapshot(plain(16, kernel=kernel_threads), [guest(1, 2, ALL, cgroups=scopes)])
    agent.host.failing = {"": "the kernel refuses"}
    service.set_policy(HOST, isolated("enforce", isolation="live"), ANN)
    failed = reconciler.reconcile(HOST, "started")
    assert {each.target.kind for each in failed.drifts if each.backoff_until} == {"workqueue"}
    (run,) = runs_of(service)
    meddle(agent, VCPU, "0-15")
    report = reconciler.reconcile(HOST, "guest-changed")
    assert {"workqueue", "vcpu"} <= {each.target.kind for each in report.drifts}
    assert (runs_of(service), agent.host.mask(VCPU)) == ((run,), "0-15")


@pytest.mark.fault(47)
def test_a_guest_that_hangs_alone_is_not_measured_again_and_again(service, reconciler, agent):
    agent.host.taken = replace(agent.host.taken, processes=())
    agent.host.failing = {agent.host.taken.guests[0].uuid: "no answer"}
    service.set_policy(HOST, ENFORCE, ANN)
    assert reconciler.reconcile(HOST, "started").error.endswith("is undone: guest g1 emulator: no answer")
    for _ in range(5):
        report = reconciler.reconcile(HOST, "resync")
    assert {drift.cause for drift in report.drifts} == {"failed"}
    assert len(runs_of(service)) == 1
    assert len([seconds for seconds in agent.host.samples if seconds]) <= 2


@pytest.mark.fault(47)
def test_a_back_off_outlives_the_server(service, reconciler, two_guests, store, clock):
    service.set_policy(HOST, ENFORCE, ANN)
    drifts = reconciler.reconcile(HOST, "started").drifts
    with closing(ServiceParts({HOST: two_guests}, store, clock, lambda: uuid.uuid4().hex[:12], 5.0)) as later:
        assert later.reconciler.reconcile(HOST, "started").drifts == drifts
        assert len(runs_of(service)) == 1
        clock.at -= timedelta(days=1)
        (until,) = {drift.backoff_until for drift in later.reconciler.reconcile(HOST, "resync").drifts}
        assert timedelta() < until - clock.at <= BASE_DELAY, "a step of the clock backwards freezes no target"


@pytest.mark.fault(48)
def test_a_process_that_moves_faster_than_a_plan_is_made_backs_off_alone(service, reconciler, agent, monkeypatch):
    service.set_policy(HOST, ENFORCE, ANN)
    apply = agent.apply
    moved = "process daemon (500) thread 500 may run on 3, no longer on 0-15"

    def refuse(plan, run, progress):
        if any(change.target.kind == "process" for change in plan.changes):
            raise StalePlan(plan.id, (moved,), ({"kind": "process", "owner": "500", "part": 1, "name": "daemon"},))
        return apply(plan, run, progress)

    started = agent.host.taken.processes[0].started
    monkeypatch.setattr(agent, "apply", refuse)
    if started != 1:
        agent.host.taken = replace(agent.host.taken, processes=(replace(agent.host.taken.processes[0], started=1),))
    (drift,) = reconciler.reconcile(HOST, "started").drifts
    assert (drift.target.kind, drift.cause) == ("process", "failed")
    assert drift.detail == f"{moved}, after a new plan: the process or another program sets its affinity"
    assert kernel(agent) == PLACED | {"daemon": "0-15"}


def test_an_apply_in_part_is_recorded_as_such_without_a_policy(service, two_guests):
    made = service.plan(HOST, Request(), None, 5.0, ANN)
    run = service.apply(made.id, ApplyOptions(), ANN)
    assert list(service.follow(run.id))[-1].run.state == "applied_partly"
    report = service.drift(HOST)
    assert (report.placement, {drift.target.name for drift in report.drifts}) == (made.id, {"g2"})
    assert {drift.cause for drift in report.drifts} == {"arrived"}
    list(service.follow(service.rollback(run.id, ANN).id))
    assert kernel(two_guests) == FREE
    assert service.drift(HOST).placement == ""


def test_an_apply_that_changes_nothing_cannot_be_rolled_back(service, agent):
    made = service.plan(HOST, Request(), None, 5.0, ANN)
    first = service.apply(made.id, ApplyOptions(), ANN)
    list(service.follow(first.id))
    again = service.plan(HOST, Request(), None, 5.0, ANN)
    assert again.changes == ()
    second = service.apply(again.id, ApplyOptions(), ANN)
    list(service.follow(second.id))
    why = f"run {second.id} is applied: it changed nothing, so there is nothing to roll back; run {first.id} made the"
    with pytest.raises(RunConflict, match=why):
        service.rollback(second.id, ANN)
    assert kernel(agent) == PLACED
    assert service.drift(HOST).placement == again.id
    list(service.follow(service.rollback(first.id, ANN).id))
    assert kernel(agent) == FREE
    assert service.drift(HOST).placement == "", "nothing is placed any more"


WORSE = Policy(Request(housekeeping="0", emulator="1-2"), "enforce")
"""One CPU for daemons that use eight."""


@pytest.mark.fault(51)
def test_a_plan_that_makes_the_objective_worse_is_reported_once_and_not_applied(service, reconciler, agent):
    heavy = process(500, 800.0, "0-15", "0-15", name="daemon")
    agent.host.taken = replace(agent.host.taken, processes=(heavy,))
    service.set_policy(HOST, WORSE, ANN)
    for _ in range(3):
        report = reconciler.reconcile(HOST, "resync")
        assert "the plan makes the objective worse" in report.error
        assert "host_overload 0.00 -> 7.00 CPUs; a policy does not apply it" in report.error
        assert report.drifts
        assert service.drift(HOST).error
    assert kernel(agent) == FREE
    assert len(trail(service, "drift.found")) == 1
    assert not trail(service, "run.apply")
    made = service.plan(HOST, WORSE.request, None, None, ANN)
    run = service.apply(made.id, ApplyOptions(), ANN)
    assert run.id


CACHES = with_caches(plain(34, isolated="2-33"), "0-1", "2-9", "10-17", "18-25", "26-33")
"""Isolated CPUs 2-33 with four level-3 caches of eight CPUs each."""
SPREAD = ("2-5", "6-7,10-11", "18-21", "22-23,26-27")
"""The CPUs of four guests, of which two span two caches each."""


FULL = ("2-5,10-13", "6-9,14-17", "18-25", "26-33")
"""The CPUs of four guests that use all CPUs, of which two span two caches each."""


def spread(agent, places=SPREAD):
    floor = cpus("0-1")
    pins = {number: [str(cpu) for cpu in cpus(on)] for number, on in enumerate(places)}
    agent.host.taken = snapshot(
        CACHES, [guest(number, len(on), floor, pins=on, memory={}) for number, on in pins.items()]
    )


def isolated(mode, **parameters):
    return Policy(Request("isolated", weights={"extra_l3": 5}, **parameters), mode)


@pytest.mark.parametrize("mode", ["propose", "enforce"])
def test_a_re_pack_that_pays_is_proposed_after_a_while_and_not_applied(service, reconciler, agent, clock, mode):
    spread(agent)
    service.set_policy(HOST, isolated("enforce"), ANN)
    reconciler.reconcile(HOST, "started")
    service.set_policy(HOST, isolated(mode), ANN)
    before = agent.host.kernel()
    assert reconciler.reconcile(HOST, "resync").repack is None
    clock.at += timedelta(minutes=14)
    assert reconciler.reconcile(HOST, "resync").repack is None
    clock.at += timedelta(minutes=1)
    found = reconciler.reconcile(HOST, "resync").repack
    assert (found.pressure, found.why) == (10, "")
    assert service.drift(HOST).repack == found
    assert (agent.host.kernel(), service.drift(HOST).drifts) == (before, ())
    clock.at += timedelta(hours=1)
    assert reconciler.reconcile(HOST, "resync").repack == found
    list(service.follow(service.apply(found.plan, ApplyOptions(), ANN).id))
    assert agent.host.kernel() != before
    after = reconciler.reconcile(HOST, "resync")
    assert (after.repack, after.drifts) == (None, ())
    assert service.run(service.runs(HOST, PageRequest(5)).items[0].id).plan == found.plan


def test_a_re_pack_without_a_free_cpu_is_not_proposed_and_says_so(service, reconciler, agent, clock):
    spread(agent, FULL)
    service.set_policy(HOST, isolated("enforce"), ANN)
    for _ in range(3):
        report = reconciler.reconcile(HOST, "resync")
        clock.at += timedelta(minutes=15)
    assert (report.repack.plan, report.repack.why) == ("", "no move of a guest gains")


def test_a_policy_that_observes_proposes_no_re_pack(service, reconciler, agent, clock):
    spread(agent)
    service.set_policy(HOST, isolated("observe"), ANN)
    for _ in range(3):
        clock.at += timedelta(minutes=15)
        assert reconciler.reconcile(HOST, "resync").repack is None
