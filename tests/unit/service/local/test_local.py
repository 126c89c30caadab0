import threading
import time
import uuid
from contextlib import closing, contextmanager
from datetime import timedelta

import pytest
from support.clock import Clock
from support.fakes.hosted_agent import HostedAgent
from support.fakes.snapshot_host import Killed
from support.values import NOON, busy_host, busy_plan, make_change, make_plan, make_run, make_snapshot

from pinner.agent.protocol import Agent
from pinner.model.errors import (
    Blocked,
    HostBusy,
    HostUnreachable,
    Invalid,
    NotFound,
    NotPermitted,
    PinnerError,
    RunConflict,
    StalePlan,
    StoreUnavailable,
    Unanswered,
)
from pinner.model.page import PageRequest
from pinner.model.plan.request import Request
from pinner.model.run.agent_audit import named_head
from pinner.model.run.audit import Caller
from pinner.model.run.journal import NEVER_BEGUN, ApplyOptions
from pinner.service.local import ServiceParts
from pinner.service.protocol import Service
from pinner.service.runs.run_recorder import BEGIN_GRACE
from pinner.store.runs.runs import Runs

ANN = Caller("ann", "10.0.0.1", "req-1")
BOB = Caller("bob", "cli pts/1", "req-2")


@pytest.fixture
def clock():
    return Clock(timedelta(seconds=1))


@pytest.fixture
def agent(tmp_path, clock):
    made = HostedAgent(tmp_path / "agent", busy_host(), clock)
    yield made
    made.journal.close()


def compose_service(agent, store, clock):
    return ServiceParts({"h1": agent}, store, clock, lambda: uuid.uuid4().hex[:12], 0.0)


@pytest.fixture
def service(store, agent, clock):
    with closing(compose_service(agent, store, clock)) as made:
        yield made.service


@pytest.fixture
def plan(store):
    """Three changes of processes 100, 110 and 120, from 0-3 to 1, 2 and 3."""
    basis = store.snapshots.add(make_snapshot())
    made = busy_plan("plan-3", basis, (make_change(90 + 10 * n, after=str(n), threads=2) for n in (1, 2, 3)))
    store.plans.add(made, NOON)
    return made


def wait_through(service, run):
    """Wait until this process has ended the run, whatever its state."""
    while run.id in service._runs._ends:
        time.sleep(0.01)


def finish(service, run):
    return list(service.follow(run.id))


@contextmanager
def cut_off(agent, error):
    """The next apply raises the error after its first change. The agent goes on with the run when the block ends."""
    apply, lost = agent.apply, threading.Event()
    calls = []

    def cut(plan, run, progress):
        def watched(entry, total):
            if not lost.is_set():
                progress(entry, total)
            if entry.state == "done":
                lost.set()

        calls.append(threading.Thread(target=apply, args=(plan, run, watched)))
        calls[0].start()
        assert lost.wait(10)
        raise error

    agent.host.gate, agent.apply = threading.Semaphore(2), cut
    yield
    agent.host.gate.release(1000)
    calls[0].join()


def trail(service, *actions):
    records = reversed(service.audit(None, None, None, PageRequest(100)).items)
    return [record for record in records if not actions or record.action in actions]


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


def test_a_reader_between_the_store_of_a_run_and_its_begin_does_not_close_it(service, plan, clock, monkeypatch):
    """The clock is far beyond BEGIN_GRACE by then, as after a stall of this process."""
    stored = Runs.add
    read = []

    def add(runs, run, *rest, **named):
        stored(runs, run, *rest, **named)
        clock.at += 2 * BEGIN_GRACE
        read.append(service.run(run.id).state)

    monkeypatch.setattr(Runs, "add", add)
    run = service.apply(plan.id, ApplyOptions(), ANN)
    assert set(read) == {"running"}
    assert finish(service, run)[-1].run.state == "applied"


def test_following_shows_changes_as_they_end(service, agent, plan):
    agent.host.gate = threading.Semaphore(0)
    changes = service.follow(service.apply(plan.id, ApplyOptions(), ANN).id)
    for seq in (1, 2, 3):
        agent.host.gate.release(2)  # two threads
        progress = next(changes)
        assert (progress.entry.seq, progress.done, progress.total) == (seq, seq, 3)
    assert [progress.entry for progress in changes] == [None]


def test_following_a_run_of_another_process(service, agent, plan, store, clock):
    """Another service over the same database and journal plays that process; it never notifies this service."""
    agent.host.gate = threading.Semaphore(0)
    with closing(compose_service(agent, store, clock)) as other:
        run = other.service.apply(plan.id, ApplyOptions(), ANN)
        changes = service.follow(run.id)
        agent.host.gate.release(1000)
        assert [p.entry and p.entry.seq for p in changes] == [1, 2, 3, None]
    assert service.run(run.id).state == "applied"


def test_close_waits_for_the_run_under_way(store, agent, clock, plan):
    agent.host.gate = threading.Semaphore(0)
    parts = compose_service(agent, store, clock)
    run = parts.service.apply(plan.id, ApplyOptions(), ANN)
    threading.Timer(0.2, agent.host.gate.release, [1000]).start()
    parts.close()
    assert parts.service.run(run.id).state == "applied"


def test_an_agent_that_fails_during_a_run(service, agent, plan):
    """An unexpected error of the agent: only its journal knows which changes it has made, and how the run ended."""
    agent.host.break_at = 3
    run = service.apply(plan.id, ApplyOptions(), ANN)
    assert finish(service, run)[-1].run.state == "undone"
    assert "the agent broke" in service.run(run.id).error
    assert [entry.state for entry in service.entries(run.id)] == ["undone", "failed", "undone"]
    assert set(agent.host.kernel().values()) == {"0-3"}
    assert trail(service, "run.end")[0].result.startswith("undone")


def test_an_agent_that_fails_during_a_run_without_an_end(service, agent, plan):
    """While the journal has no end, the run is running: nobody knows better."""
    with cut_off(agent, PinnerError("the agent broke")):
        run = service.apply(plan.id, ApplyOptions(), ANN)
        wait_through(service, run)
        assert service.run(run.id).state == "running"
        assert trail(service, "run.end") == []


def test_the_end_of_a_run_is_read_later_from_an_unreachable_agent(service, agent, plan, clock):
    """The connection broke and the run went on: the agent's journal tells how the run ended."""
    with cut_off(agent, HostUnreachable("h1", "the connection broke")):
        run = service.apply(plan.id, ApplyOptions(), ANN)
        wait_through(service, run)
        assert service.run(run.id).state == "running"
    assert service.run(run.id).state == "applied"
    assert service.entries(run.id) == agent.entries(run.id)
    assert {entry.state for entry in agent.entries(run.id)} == {"done"}
    assert [r.result for r in trail(service, "run.change", "run.end")] == ["done", "done", "done", "applied"]


def test_the_end_of_a_run_is_read_from_the_agent_after_the_clock_was_set_back(service, agent, plan, clock):
    """Otherwise the run would be under way until the clock is as late as before."""
    with cut_off(agent, HostUnreachable("h1", "the connection broke")):
        run = service.apply(plan.id, ApplyOptions(), ANN)
        wait_through(service, run)
    clock.at -= timedelta(hours=2)
    assert service.run(run.id).state == "applied"


@pytest.mark.fault(32)
@pytest.mark.parametrize(("begins", "state"), [(True, "applied"), (False, "failed")])
def test_a_run_may_have_begun_although_the_agent_was_killed_before_its_first_message(
    service, agent, plan, clock, monkeypatch, begins, state
):
    apply = agent.apply

    def killed(wanted, run, _progress):
        if begins:
            apply(wanted, run, lambda *_: None)
        raise Unanswered("h1", "its agent was killed")

    monkeypatch.setattr(agent, "apply", killed)
    with pytest.raises(HostUnreachable):
        service.apply(plan.id, ApplyOptions(), ANN)
    clock.at += 2 * BEGIN_GRACE
    (run,) = service.runs(None, PageRequest(5)).items
    assert run.state == state
    assert service.entries(run.id) == (agent.entries(run.id) if begins else ())


def test_a_run_whose_process_died_before_its_agent_began(service, store, clock):
    store.runs.add(make_run("run-dead", started_at=clock.at))
    assert service.run("run-dead").state == "running"
    clock.at += 2 * BEGIN_GRACE
    assert [p.run.state for p in service.follow("run-dead")] == ["failed"]
    assert service.runs("h1", PageRequest(5)).items[0].error == NEVER_BEGUN


@pytest.mark.fault(36)
@pytest.mark.fault(55)
@pytest.mark.parametrize("step", [timedelta(minutes=1), timedelta(hours=-1), timedelta(days=1)])
def test_a_call_that_comes_late_does_not_begin_a_closed_run(service, agent, plan, store, clock, step):
    """Another service read the run before the agent had begun it, and said that it failed: so it does not begin."""
    waiting, go_on = threading.Event(), threading.Event()
    apply = agent.apply

    def stalled(wanted, run, progress):
        waiting.set()
        assert go_on.wait(60)
        return apply(wanted, run, progress)

    agent.apply = stalled
    refused = []

    def call():
        with pytest.raises(RunConflict) as caught:
            service.apply(plan.id, ApplyOptions(), ANN)
        refused.append(caught.value)

    caller = threading.Thread(target=call)
    caller.start()
    assert waiting.wait(60)
    (run,) = service.runs(None, PageRequest(5)).items
    assert run.state == "running"
    clock.at += step
    assert service.run(run.id).state == "running", "the process that carries it out may still begin it"
    with closing(compose_service(agent, store, clock)) as other:
        ended = other.service.run(run.id)
        assert (ended.state, ended.error) == ("failed", NEVER_BEGUN)
        go_on.set()
        caller.join(60)
        assert refused
        assert agent.host.writes == []
        assert service.run(run.id) == ended == other.service.run(run.id)
        assert [r.result for r in trail(service, "run.apply", "run.change", "run.end")] == [
            "started",
            f"failed: {NEVER_BEGUN}",
        ]
        assert other.service.verify_audit().ok


@pytest.mark.fault(36)
@pytest.mark.fault(55)
def test_the_begin_that_wins_against_a_close(agent, clock, plan):
    run = make_run("run-1", plan=plan.id)
    agent.apply(plan, run, lambda *_: None)
    assert agent.close_run(run).state == "applied"
    agent.close_run(make_run("run-2"))
    with pytest.raises(RunConflict, match="run-2"):
        agent.journal.begin(make_run("run-2"))
    agent.journal.begin(make_run("run-3"))
    agent.journal.end(make_run("run-3", state="applied", ended_at=clock()))


@pytest.mark.fault(55)
def test_two_services_that_store_the_end_of_a_run_record_each_change_once(service, agent, plan, store, clock):
    """The other service asks the journal after the run's end, and before this one has stored it."""
    gate, ended = threading.Event(), threading.Event()
    apply = agent.apply

    def slow(wanted, run, progress):
        done = apply(wanted, run, progress)
        ended.set()
        assert gate.wait(60)
        return done

    agent.apply = slow
    run = service.apply(plan.id, ApplyOptions(), ANN)
    assert ended.wait(60)
    with closing(compose_service(agent, store, clock)) as other:
        assert other.service.run(run.id).state == "applied"
        gate.set()
        wait_through(service, run)
        assert service.run(run.id).state == "applied"
        assert len(trail(service, "run.change")) == 3
        assert len(trail(service, "run.end")) == 1
        assert other.service.verify_audit().ok


def test_the_result_of_a_recovery_is_recorded_at_the_next_start(service, agent, plan, store, clock):
    """At once: the process that carried out the run is dead, so no other process can store the run's end."""
    agent.host.break_at, agent.host.broken = 3, Killed()
    run = service.apply(plan.id, ApplyOptions(), ANN)
    wait_through(service, run)
    words, ended = "interrupted; rolled back: 3 undone", "undone: interrupted: the process that carried it out died"
    with closing(compose_service(agent, store, clock)) as again:
        again.runs.catch_up()
        assert store.runs.get(run.id).state == "undone"
        recorded = [(r.action, r.actor, r.subject, r.result) for r in trail(again.service)][-2:]
        assert recorded == [("run.recover", "pinner", run.id, words), ("run.end", "ann", run.id, ended)]
        again.runs.catch_up()
        assert len(trail(again.service, "run.recover")) == 1
        assert again.service.verify_audit().ok


def test_the_end_of_a_run_is_read_later_from_an_agent_that_cannot_write(service, agent, plan, clock):
    with cut_off(agent, StoreUnavailable("journal.sqlite", "database or disk is full")):
        run = service.apply(plan.id, ApplyOptions(), ANN)
        wait_through(service, run)
        assert service.run(run.id).state == "running"
    assert service.run(run.id).state == "applied"


def test_an_apply_continues_without_the_database(service, agent, plan, clock, monkeypatch, caplog, store):
    agent.host.gate = threading.Semaphore(0)
    run = service.apply(plan.id, ApplyOptions(), ANN)

    def lost(*_, **__):
        raise StoreUnavailable("pinner.sqlite", "disk I/O error")

    with monkeypatch.context() as broken:
        broken.setattr(store.runs, "save", lost)
        broken.setattr(store.runs, "end", lost)
        agent.host.gate.release(1000)
        wait_through(service, run)
    assert set(agent.host.kernel().values()) == {"1", "2", "3"}
    assert "only in the agent's journal" in caplog.text
    assert service.run(run.id).state == "applied"
    assert [entry.state for entry in service.entries(run.id)] == ["done"] * 3
    assert len(trail(service, "run.change")) == 3
    assert service.verify_audit().ok


def test_no_run_begins_without_the_database(service, agent, plan, monkeypatch, store):
    def lost(*_, **__):
        raise StoreUnavailable("pinner.sqlite", "disk I/O error")

    monkeypatch.setattr(store.runs, "add", lost)
    with pytest.raises(StoreUnavailable):
        service.apply(plan.id, ApplyOptions(), ANN)
    assert agent.host.writes == []


def test_an_unexpected_error_is_not_swallowed(service, agent, plan):
    agent.host.refusal = ZeroDivisionError("oops")
    with pytest.raises(ZeroDivisionError):
        service.apply(plan.id, ApplyOptions(), ANN)
    assert trail(service)[-1].result == f"refused: {PinnerError.code}"
