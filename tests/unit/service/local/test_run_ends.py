"""The end of a run whose agent, process or database fails."""

import threading
import time
from contextlib import closing, contextmanager
from datetime import timedelta

import pytest
from support.fakes.local_service import ANN, compose_service, finish, trail
from support.fakes.snapshot_host import Killed
from support.values import make_run

from pinner.model.errors import (
    HostUnreachable,
    PinnerError,
    RunConflict,
    StoreUnavailable,
    Unanswered,
)
from pinner.model.page import PageRequest
from pinner.model.run.journal import NEVER_BEGUN, ApplyOptions
from pinner.service.runs.run_recorder import BEGIN_GRACE
from pinner.store.runs.runs import Runs


def wait_through(service, run):
    """Wait until this process has ended the run, whatever its state."""
    while run.id in service._runs._ends:
        time.sleep(0.01)


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
