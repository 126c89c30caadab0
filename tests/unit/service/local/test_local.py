import threading
from dataclasses import replace
from unittest.mock import Mock

import pytest
from support.fakes.local_service import ANN, finish, trail
from support.values import NOON, make_plan, make_snapshot

from pinner.agent.protocol import Agent
from pinner.model.errors import (
    Blocked,
    HostBusy,
    HostUnreachable,
    Invalid,
    NotFound,
    NotPermitted,
    PolicyConflict,
    RunConflict,
    StalePlan,
    WorsePlan,
)
from pinner.model.page import PageRequest
from pinner.model.plan.objective import compared, weighted
from pinner.model.plan.request import Request
from pinner.model.policy import Policy
from pinner.model.run.agent_audit import named_head
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions
from pinner.service.protocol import Service

BOB = Caller("bob", "cli pts/1", "req-2")


def test_service_and_agent_satisfy_their_protocols(service, agent):
    """mypy does not read the tests: it checks these assignments in wiring; here they are shown."""
    use_cases: Service = service
    host: Agent = agent
    assert use_cases.hosts() == ("h1",)
    assert host.run


def test_hosts_and_strategies(service):
    assert service.hosts() == ("h1",)
    known = {info.name: info for info in service.strategies()}
    assert {"shared-pool", "numa-local", "isolated"} <= set(known)
    assert "housekeeping" in known["shared-pool"].parameters


def test_a_snapshot_is_stored_and_recorded(service):
    key, taken = service.take_snapshot("h1", None, ANN)
    assert service.snapshot(key) == taken
    assert service.take_snapshot("h1", 0.0, ANN)[0] == key
    assert service.take_snapshot("h1", 1.5, ANN)[1].sample_seconds == 1.5
    first = trail(service)[0]
    assert (first.action, first.actor, first.origin, first.host, first.subject, first.request_id) == (
        "snapshot.take",
        "ann",
        "10.0.0.1",
        "h1",
        key,
        "req-1",
    )


def test_observing_stores_nothing(service):
    assert service.observe("h1", 0).host == "h1"
    assert trail(service) == []


@pytest.mark.parametrize("seconds", [-1, 301, float("nan"), float("inf")])
def test_an_impossible_sample_is_refused(service, seconds):
    for call in (lambda: service.observe("h1", seconds), lambda: service.take_snapshot("h1", seconds, ANN)):
        with pytest.raises(Invalid, match="sample_seconds"):
            call()


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda s: s.observe("h9", 0), "host"),
        (lambda s: s.take_snapshot("h9", 0, ANN), "host"),
        (lambda s: s.plan("h9", Request(), None, None, ANN), "host"),
        (lambda s: s.plans("h9", PageRequest(5)), "host"),
        (lambda s: s.runs("h9", PageRequest(5)), "host"),
        (lambda s: s.plan("h1", Request(), "nope", None, ANN), "snapshot"),
        (lambda s: s.plan("h1", Request(strategy="nope"), None, None, ANN), "strategy"),
        (lambda s: s.snapshot("nope"), "snapshot"),
        (lambda s: s.plan_by_id("nope"), "plan"),
        (lambda s: s.apply("nope", ApplyOptions(), ANN), "plan"),
        (lambda s: s.rollback("nope", ANN), "run"),
        (lambda s: s.run("nope"), "run"),
        (lambda s: s.entries("nope"), "run"),
        (lambda s: s.follow("nope"), "run"),
    ],
)
def test_unknown_names_raise_not_found(service, call, kind):
    with pytest.raises(NotFound) as caught:
        call(service)
    assert caught.value.details["kind"] == kind
    if kind == "host":
        assert caught.value.details["known"] == ["h1"]
    assert trail(service) == []


def test_a_plan_is_stored_with_its_snapshot(service):
    made = service.plan("h1", Request(), None, 0.0, ANN)
    assert service.plan_by_id(made.id) == made
    assert service.snapshot(made.basis.snapshot).host == "h1"
    assert service.plan("h1", Request(), made.basis.snapshot, None, BOB) == made
    assert [item.id for item in service.plans("h1", PageRequest(5)).items] == [made.id]
    assert [(record.action, record.actor) for record in trail(service)] == [
        ("snapshot.take", "ann"),
        ("plan.create", "ann"),
        ("plan.create", "bob"),
    ]


def test_a_snapshot_of_another_host_is_refused(service, store):
    other = store.snapshots.add(make_snapshot(host="h2"))
    with pytest.raises(Invalid, match="this one is of h2"):
        service.plan("h1", Request(), other, None, ANN)


def refused(service, agent, plan):
    """The plan, stale since another program moved a thread."""
    agent.host.move(plan.changes[0].before[0].tid, "2-3")
    with pytest.raises(StalePlan):
        service.apply(plan.id, ApplyOptions(), ANN)
    return plan.id


def test_the_successor_of_a_stale_plan_is_audited_as_such(service, agent, plan):
    successor = service.plan("h1", plan.request, None, None, ANN, replaces=refused(service, agent, plan))
    record = trail(service)[-1]
    assert (record.action, record.subject, record.result) == (
        "plan.create",
        successor.id,
        f"{len(successor.changes)} changes, in place of plan {plan.id}",
    )


def test_only_a_plan_of_the_host_has_a_successor(service, store, plan):
    other = make_plan("other", store.snapshots.add(make_snapshot(host="h2")), (), "h2")
    store.plans.add(other, NOON)
    for id_, error in (("nope", NotFound), ("other", Invalid)):
        before = len(trail(service))
        with pytest.raises(error, match=id_):
            service.plan("h1", plan.request, None, None, ANN, replaces=id_)
        assert len(trail(service)) == before


def test_only_a_refused_plan_by_the_same_request_has_a_successor(service, agent, plan):
    with pytest.raises(Invalid, match=f"replaces: '{plan.id}' is not valid: a plan that an apply"):
        service.plan("h1", plan.request, None, None, ANN, replaces=plan.id)
    refused(service, agent, plan)
    with pytest.raises(Invalid, match=f"replaces: '{plan.id}' is not valid: a plan by the same"):
        service.plan("h1", replace(plan.request, housekeeping="0"), None, None, ANN, replaces=plan.id)


def test_a_plan_that_was_applied_has_no_successor(service, plan):
    finish(service, service.apply(plan.id, ApplyOptions(), ANN))
    with pytest.raises(Invalid, match="this one is not"):
        service.plan("h1", plan.request, None, None, ANN, replaces=plan.id)


@pytest.mark.parametrize("applied", [True, False])
def test_a_plan_that_was_never_stale_or_applied_later_has_no_successor(service, agent, plan, monkeypatch, applied):
    """Another run was working on the host, or the plan was applied once the host was again as planned."""
    error = StalePlan(plan.id, ("a thread was moved",)) if applied else HostBusy("h1", "run-other")
    with monkeypatch.context() as patch:
        patch.setattr(agent, "apply", Mock(side_effect=error))
        with pytest.raises(type(error)):
            service.apply(plan.id, ApplyOptions(), ANN)
    if applied:
        finish(service, service.apply(plan.id, ApplyOptions(), ANN))
    with pytest.raises(Invalid, match="this one is not"):
        service.plan("h1", plan.request, None, None, ANN, replaces=plan.id)


def test_an_apply_from_start_to_end(service, agent, plan):
    run = service.apply(plan.id, ApplyOptions(persist=True), ANN)
    progress = finish(service, run)
    assert [(p.entry and p.entry.seq, p.total) for p in progress] == [(1, 3), (2, 3), (3, 3), (None, 3)]
    assert progress[-1].done == 3
    assert agent.host.kernel() == {100: "1", 101: "1", 110: "2", 111: "2", 120: "3", 121: "3"}
    ended = service.run(run.id)
    assert (ended.state, ended.kind, ended.persist, ended.actor, ended.origin) == (
        "applied",
        "apply",
        True,
        "ann",
        "10.0.0.1",
    )
    assert service.entries(run.id) == agent.entries(run.id)
    assert list(service.follow(run.id))[-1].run == ended
    assert service.runs(None, PageRequest(5)).items == (ended,)


def test_the_audit_trail_of_an_apply(service, plan):
    run = service.apply(plan.id, ApplyOptions(persist=True), ANN)
    finish(service, run)
    undo = service.rollback(run.id, BOB)
    finish(service, undo)
    recorded = [(r.action, r.actor, r.subject, r.before, r.after, r.result) for r in trail(service)]
    assert recorded[0] == ("run.apply", "ann", f"{run.id} of plan-3", "", "persist", "started")
    assert recorded[1] == ("run.change", "ann", f"{run.id}: process busy (100)", "0-3 (2 threads)", "1", "done")
    # The agent's chain: its key, the begin, three changes, the end, and the centre's head.
    head = named_head(recorded[4][4])
    assert (recorded[4][:4], recorded[4][5], head.seq) == (("run.end", "ann", run.id, ""), "applied", 7)
    assert recorded[5] == ("run.rollback", "bob", f"{undo.id} of {run.id}", "", "", "started")
    assert recorded[-1][:4] == ("run.end", "bob", undo.id, "")
    assert recorded[-1][5] == "rolled_back"
    undone = [record for record in recorded if record[0] == "run.change" and record[1] == "bob"]
    assert sorted(record[3:] for record in undone) == [(str(n), "0-3 (2 threads)", "undone") for n in (1, 2, 3)]
    assert len(recorded) == 10
    assert service.verify_audit().ok


def test_a_rollback_restores_the_masks_and_ends_the_applied_run(service, agent, plan):
    run = service.apply(plan.id, ApplyOptions(), ANN)
    finish(service, run)
    undo = service.rollback(run.id, BOB)
    progress = finish(service, undo)
    assert {p.entry.state for p in progress if p.entry} == {"undone"}
    assert set(agent.host.kernel().values()) == {"0-3"}
    assert (service.run(undo.id).state, service.run(run.id).state) == ("rolled_back", "rolled_back")
    assert (undo.kind, undo.undoes, undo.plan) == ("rollback", run.id, plan.id)
    assert service.entries(undo.id) == service.entries(run.id)
    with pytest.raises(RunConflict):
        service.rollback(run.id, BOB)


def test_a_plan_without_changes(service, store):
    empty = make_plan("plan-0", store.snapshots.add(make_snapshot()))
    store.plans.add(empty, NOON)
    run = service.apply(empty.id, ApplyOptions(), ANN)
    assert [(p.done, p.total, p.entry) for p in service.follow(run.id)] == [(0, 0, None)]
    assert service.run(run.id).state == "applied"


def test_a_blocked_plan(service, store, agent):
    blocked = make_plan("plan-b", store.snapshots.add(make_snapshot()), blocked="a reboot is needed")
    store.plans.add(blocked, NOON)
    with pytest.raises(Blocked, match="a reboot is needed"):
        service.apply(blocked.id, ApplyOptions(), ANN)
    assert [(r.action, r.subject, r.result) for r in trail(service)] == [
        ("run.apply", "plan-b", "refused: plan_blocked")
    ]
    assert service.runs(None, PageRequest(5)).items == ()


def test_a_plan_that_makes_the_objective_worse(service, store, plan):
    terms = compared({}, {"vcpu_vs_host": 1.0}, weighted())
    worse = replace(plan, id="plan-w", worse="tier 6 0.00 -> 1.00", objective=terms)
    store.plans.add(worse, NOON)
    with pytest.raises(WorsePlan, match=r"tier 6 0.00 -> 1.00.*apply --worse") as refused:
        service.apply(worse.id, ApplyOptions(), ANN)
    assert [(term["name"], term["before"], term["after"]) for term in refused.value.details["terms"]] == [
        ("vcpu_vs_host", 0.0, 1.0)
    ]
    run = service.apply(worse.id, ApplyOptions(allow_worse=True), ANN)
    finish(service, run)
    assert service.run(run.id).state == "applied"
    assert [(r.subject, r.result) for r in trail(service, "run.apply")] == [
        ("plan-w", "refused: plan_worse"),
        ("plan-w", "allowed: plan_worse"),
        (f"{run.id} of plan-w", "started"),
    ]


def test_a_worse_plan_that_a_policy_refuses_was_not_allowed(service, store, plan):
    worse = replace(plan, id="plan-w", worse="tier 6 0.00 -> 1.00")
    store.plans.add(worse, NOON)
    service.set_policy(plan.host, Policy(Request("isolated"), "enforce"), ANN)
    with pytest.raises(PolicyConflict):
        service.apply(worse.id, ApplyOptions(allow_worse=True), ANN)
    assert trail(service, "run.apply") == []


@pytest.mark.parametrize(
    "refusal",
    [
        StalePlan("plan-3", ("CPU 3 went offline",)),
        Invalid("persist", True, "false: guest g1 is transient"),
        HostUnreachable("h1", "libvirt does not answer"),
        NotPermitted("sched_setaffinity", "pinner is not root"),
    ],
)
def test_a_refusal_comes_from_apply_itself(service, agent, plan, refusal):
    agent.host.refusal = refusal
    with pytest.raises(type(refusal)) as caught:
        service.apply(plan.id, ApplyOptions(), ANN)
    assert caught.value is refusal
    (run,) = service.runs(None, PageRequest(5)).items
    assert (run.state, run.error, service.entries(run.id)) == ("failed", str(refusal), ())
    assert [(r.action, r.result) for r in trail(service)] == [
        ("run.apply", "started"),
        ("run.apply", f"refused: {refusal.code}"),
    ]
    assert agent.host.writes == []


def test_two_applies_at_once(service, agent, plan):
    """One starts. The error of the other names the first run, also before the first run has changed anything."""
    agent.host.gate = threading.Semaphore(0)
    first = service.apply(plan.id, ApplyOptions(), ANN)
    assert service.run(first.id).state == "running"
    with pytest.raises(HostBusy) as caught:
        service.apply(plan.id, ApplyOptions(), BOB)
    assert caught.value.details == {"host": "h1", "run": first.id}
    with pytest.raises(RunConflict):
        service.rollback(first.id, BOB)
    agent.host.gate.release(1000)
    finish(service, first)
    assert service.run(first.id).state == "applied"


def test_of_eight_applies_at_once_one_starts(service, agent, plan):
    agent.host.gate = threading.Semaphore(0)
    won, refused, ready = [], [], threading.Barrier(8)

    def race():
        ready.wait()
        try:
            won.append(service.apply(plan.id, ApplyOptions(), ANN).id)
        except HostBusy as error:
            refused.append(error.details["run"])

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    agent.host.gate.release(1000)
    assert len(won) == 1
    assert refused == won * 7
    assert list(service.follow(won[0]))[-1].run.state == "applied"
