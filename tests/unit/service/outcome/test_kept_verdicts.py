"""The verdict of a watch is kept until its rollback has ended, whoever changes policy or run meanwhile."""

from datetime import timedelta

import pytest
from support.fakes.watched_host import (
    ANN,
    HOST,
    UNDOING,
    applied_again,
    applied_by_a_person,
    enforced,
    is_placed,
    killed_at,
    passes,
    records,
    refuse_earlier_runs,
    runs,
    two_worse,
    unreachable,
    wait_for_runs,
)

from pinner.model.errors import HostBusy, Invalid, NotFound, RunConflict
from pinner.model.plan.request import Request
from pinner.model.policy import Policy


@pytest.fixture
def waiting(restart, clock, load, agent, monkeypatch):
    """Lets a run be found worse while the agent does not answer, and ends the server."""

    def wait(make):
        load.worse_by = 200.0
        with monkeypatch.context() as patch, restart() as parts:
            run = make(parts)
            patch.setattr(agent, "rollback", unreachable)
            passes(parts, clock, 30)
            assert parts.service.outcome(run.id).watch.state == "watching"
        return run

    return wait


MAKERS = pytest.mark.parametrize("make", [enforced, applied_by_a_person])


@MAKERS
@pytest.mark.parametrize("late", [timedelta(), timedelta(hours=1), timedelta(days=3)])
def test_a_server_that_starts_later_knows_the_verdict(restart, clock, load, agent, waiting, make, late):
    run = waiting(make)
    clock.at += late
    load.is_known = not late  # the steps of that time are gone
    with restart() as parts:
        watch = parts.service.outcome(run.id).watch
        assert watch.why.startswith("worse than before the run, after 4 steps: run_delay; ")
        passes(parts, clock, 10)
        undo = runs(parts)[0]
        watch = parts.service.outcome(run.id).watch
        assert (watch.state, watch.why, watch.rollback) == (
            "worse",
            "worse than before the run, after 4 steps: run_delay",
            undo.id,
        )
        assert (undo.undoes, is_placed(agent), len(records(parts, "run.watch"))) == (run.id, False, 1)


def test_a_server_that_dies_before_it_stores_the_verdict_finds_it_again(
    restart, store, clock, load, agent, monkeypatch
):
    load.worse_by = 200.0
    with restart() as parts:
        run = applied_by_a_person(parts)
        killed_at(parts, clock, monkeypatch, store.outcomes, "put_watch")
    with restart() as parts:
        passes(parts, clock, 10)
        assert (parts.service.outcome(run.id).watch.state, is_placed(agent)) == ("worse", False)


@MAKERS
def test_a_person_who_rolls_the_run_back_ends_the_watch_with_its_verdict(restart, clock, agent, waiting, make):
    run = waiting(make)
    with restart() as parts:
        undo = parts.service.rollback(run.id, ANN)
        wait_for_runs(parts)
        passes(parts, clock, 10)
        watch = parts.service.outcome(run.id).watch
        assert (watch.state, watch.rollback, is_placed(agent)) == ("worse", undo.id, False)
        assert watch.why == "worse than before the run, after 4 steps: run_delay; the run is rolled_back, by ann"


def test_a_policy_that_is_deleted_meanwhile_ends_no_verdict(restart, clock, agent, waiting):
    run = waiting(enforced)
    with restart() as parts:
        parts.service.delete_policy(HOST, ANN)
        clock.at += timedelta(hours=2)
        passes(parts, clock, 10)
        assert (parts.service.outcome(run.id).watch.state, is_placed(agent)) == ("worse", False)
        with pytest.raises(NotFound):
            parts.service.policy(HOST)


def test_a_policy_that_a_person_lets_enforce_meanwhile_stays(restart, clock, agent, waiting):
    run = waiting(enforced)
    with restart() as parts:
        parts.service.set_policy(HOST, UNDOING, ANN)
        passes(parts, clock, 10)
        watch = parts.service.outcome(run.id).watch
        assert (watch.state, watch.rollback, is_placed(agent)) == ("worse", "", True)
        assert "; it cannot be undone: " in watch.why
        assert (parts.service.policy(HOST), len(records(parts, "policy.set"))) == (UNDOING, 3)


@MAKERS
@pytest.mark.parametrize(
    "error", [RunConflict("run-1", "applied", "the host was restarted since"), NotFound("run", "run-1")]
)
def test_an_agent_that_refuses_for_good_ends_the_watch(restart, clock, agent, waiting, monkeypatch, make, error):
    run = waiting(make)

    def refuse(*_):
        raise error

    with restart() as parts:
        monkeypatch.setattr(agent, "rollback", refuse)
        passes(parts, clock, 10)
        count = len(runs(parts))
        watch = parts.service.outcome(run.id).watch
        why = f"worse than before the run, after 4 steps: run_delay; it cannot be undone: {error}"
        assert (watch.state, watch.why, watch.rollback) == ("worse", why, "")
        passes(parts, clock, 60)
        assert len(runs(parts)) == count


@MAKERS
def test_an_agent_that_does_not_answer_gets_no_run_for_each_try(restart, clock, agent, waiting, monkeypatch, make):
    waiting(make)
    with restart() as parts:
        before = len(runs(parts))
        with monkeypatch.context() as patch:
            patch.setattr(agent, "run", unreachable)
            for _ in range(60):
                clock.at += timedelta(seconds=5)
                parts.outcomes.make_pass()
        assert len(runs(parts)) == before
        passes(parts, clock, 10)
        assert not is_placed(agent)


def test_a_run_that_is_purged_meanwhile_leaves_nothing(parts, store, clock, load, agent, monkeypatch):
    """The purge comes between the search for the runs that are due and the look at them."""
    load.worse_by = 200.0
    monkeypatch.setattr(agent, "rollback", unreachable)
    run = applied_by_a_person(parts)
    for _ in range(6):
        clock.at += timedelta(seconds=5)
        parts.outcomes.make_pass()
    assert store.outcomes.watch(run.id).state == "watching"
    due = store.outcomes.due

    def purge(*arguments):
        found = due(*arguments)
        assert store.retention.purge_runs(clock.at + timedelta(days=1), lambda _: False)
        return found

    monkeypatch.setattr(store.outcomes, "due", purge)
    parts.outcomes.make_pass()
    assert (store.outcomes.watch(run.id), store.outcomes.observed(run.id)) == (None, None)
    assert records(parts, "run.watch") == []


def test_the_outcome_of_an_old_run_is_not_stored(restart, store, clock, load, waiting):
    """The fine steps of its time are gone."""
    run = waiting(enforced)
    clock.at += timedelta(days=3)
    load.is_known = False
    with restart() as parts:
        passes(parts, clock, 10)
        assert parts.service.outcome(run.id).watch.state == "worse"
        assert store.outcomes.observed(run.id) is None


def test_a_failure_that_goes_on_is_not_told_to_be_over(parts, clock, load, agent, monkeypatch, caplog):
    monkeypatch.setattr(agent, "rollback", unreachable)
    two_worse(parts, clock, load, agent)
    passes(parts, clock, 60)
    messages = [each.getMessage() for each in caplog.records if each.name == "pinner.service.outcome.outcomes"]
    assert any(each.endswith("does not go on now: host compute1: its agent does not answer") for each in messages)
    assert not any("are stored again" in each for each in messages)


class Restarting:
    """The parts of a server that ends and starts again before each pass."""

    def __init__(self, restart):
        self._restart = restart

    def passes(self, clock, count, step=timedelta(seconds=5)):
        for _ in range(count):
            clock.at += step
            with self._restart() as parts:
                parts.outcomes.make_pass()
                wait_for_runs(parts)
                parts.reconciler.reconcile(HOST, "resync", measured=True)


def test_two_worse_runs_are_undone_by_servers_that_restart_before_each_pass(restart, clock, load, agent, monkeypatch):
    server = Restarting(restart)
    with restart() as parts, monkeypatch.context() as patch:
        patch.setattr(agent, "rollback", unreachable)
        first, second = two_worse(parts, clock, load, agent)
        server.passes(clock, 8)
        server.passes(clock, 2, timedelta(hours=1))
    server.passes(clock, 4)
    with restart() as parts:
        assert [parts.service.run(each.id).state for each in (first, second)] == ["rolled_back"] * 2
        assert [parts.service.outcome(each.id).watch.state for each in (first, second)] == ["worse"] * 2
        assert len(records(parts, "run.watch")) == 2


def test_runs_that_changed_a_target_again_are_undone_in_order_after_a_long_silence(
    restart, clock, load, agent, monkeypatch
):
    load.worse_by = 200.0
    server = Restarting(restart)
    with restart() as parts:
        first = enforced(parts)
        second = applied_again(parts, clock, agent)
        with monkeypatch.context() as patch:
            patch.setattr(agent, "rollback", unreachable)
            patch.setattr(agent, "run", unreachable)
            for _ in range(80):
                clock.at += timedelta(seconds=5)
                parts.outcomes.make_pass()
        refuse_earlier_runs(parts, agent, monkeypatch)
        server.passes(clock, 6)
        assert [parts.service.run(each.id).state for each in (first, second)] == ["rolled_back"] * 2
        assert not is_placed(agent)


def test_a_rollback_waits_for_the_run_that_works_on_the_host(parts, clock, load, agent, monkeypatch):
    load.worse_by = 200.0
    run = enforced(parts)
    count = len(runs(parts))

    def busy(host):
        raise HostBusy(host, "run-1")

    with monkeypatch.context() as patch:
        patch.setattr(parts.runs, "require_idle", busy)
        for _ in range(10):
            clock.at += timedelta(seconds=5)
            parts.outcomes.make_pass()
    assert (len(runs(parts)), parts.service.outcome(run.id).watch.state) == (count, "watching")
    passes(parts, clock, 5)
    assert not is_placed(agent)


def test_a_later_run_that_cannot_be_undone_ends_the_watch(parts, clock, load, agent, monkeypatch):
    load.worse_by = 200.0
    first = enforced(parts)
    second = applied_again(parts, clock, agent)

    def refuse(run, _):
        raise RunConflict(run.undoes, "applied", "the host was restarted since")

    monkeypatch.setattr(agent, "rollback", refuse)
    passes(parts, clock, 120)
    watch = parts.service.outcome(first.id).watch
    assert (watch.state, watch.rollback) == ("worse", "")
    assert watch.why.endswith("; it cannot be undone: run " + second.id + " is applied: the host was restarted since")
    assert parts.service.outcome(second.id).watch.state != "watching"
    count = len(runs(parts))
    passes(parts, clock, 60)
    assert len(runs(parts)) == count


@MAKERS
def test_the_outcome_is_stored_while_the_rollback_is_not_possible(
    restart, store, clock, agent, waiting, monkeypatch, make
):
    run = waiting(make)
    with restart() as parts:
        monkeypatch.setattr(agent, "rollback", unreachable)
        passes(parts, clock, 330)
        assert store.outcomes.observed(run.id) is not None


@pytest.mark.parametrize("back", [timedelta(minutes=2), timedelta(hours=1), timedelta(days=1)])
def test_a_clock_that_is_set_back_ends_the_watch(parts, clock, load, agent, back):
    """The history before the run is put aside then, so nothing can be compared."""
    load.worse_by = 200.0
    run = enforced(parts)
    clock.at -= back
    passes(parts, clock, 10)
    watch = parts.service.outcome(run.id).watch
    assert (watch.state, is_placed(agent), parts.service.policy(HOST)) == ("stopped", True, UNDOING)
    assert watch.why.startswith("the clock was set back to ")


@pytest.mark.parametrize("ahead", [timedelta(minutes=10), timedelta(hours=2), timedelta(days=2)])
def test_a_clock_that_is_set_forward_ends_the_watch(parts, clock, load, ahead):
    load.worse_by = 200.0
    run = enforced(parts)
    clock.at += ahead
    passes(parts, clock, 10)
    watch = parts.service.outcome(run.id).watch
    assert watch.state == "stopped"
    assert watch.why.startswith("no server looked in time: ")


@MAKERS
@pytest.mark.parametrize("step", [timedelta(minutes=-2), timedelta(days=-1), timedelta(days=2)])
def test_no_step_of_the_clock_ends_a_verdict(restart, clock, agent, waiting, make, step):
    run = waiting(make)
    clock.at += step
    with restart() as parts:
        passes(parts, clock, 10)
        assert (parts.service.outcome(run.id).watch.state, is_placed(agent)) == ("worse", False)


def test_the_outcome_of_a_run_from_before_the_clock_was_set_back_can_be_read(parts, clock, agent):
    """A history refuses to be read from a time that is later than the end."""
    known = agent.histories

    def histories(begin, end, step, subject):
        if begin >= end:
            raise Invalid("from", begin.isoformat(), f"a time before {end.isoformat()}")
        return known(begin, end, step, subject)

    agent.histories = histories
    run = enforced(parts, Policy(Request(), "enforce"))
    clock.at -= timedelta(hours=1)
    found = parts.service.outcome(run.id)
    assert (found.is_final, found.notes[0]) == (False, "the clock was set back since the run")
