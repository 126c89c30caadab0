"""The outcome of runs: what was measured before and after them, and the watch that may undo them."""

import uuid
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest
from support.fakes.ring import Ring
from support.fakes.watched_run import ANN, DB, TERM, applied, passes
from support.values import NOON

from pinner.model.errors import HostUnreachable, Invalid, NotFound
from pinner.model.outcome.outcome import CORE, TRAFFIC
from pinner.service.local import ServiceParts


def test_an_outcome_has_the_same_measures_before_and_after_the_run(parts, plan, clock, load):
    load.worse_by, load.since = -20.0, NOON
    run = applied(parts, plan)
    clock.forward(400)
    found = parts.service.outcome(run.id)
    delay = found.measures[0]
    assert (found.label, found.guests, found.control, found.expected) == (
        "observed, not tested",
        ("web1",),
        ("db1",),
        (TERM,),
    )
    assert (delay.steps_before, delay.steps_after) == (59, 59)
    assert delay.guests.difference == pytest.approx(-20.0)
    assert (delay.guests.higher, delay.control.difference) == (0.0, 0.0)
    assert (found.begin, found.end) == (NOON - timedelta(minutes=5), NOON + timedelta(minutes=5))
    assert (found.is_final, found.notes) == (True, ())


@pytest.mark.parametrize("most", [1, 3])
def test_an_outcome_of_a_host_with_more_values_than_an_answer_has_is_the_same(parts, plan, clock, agent, most):
    """An agent bounds the values in one answer: on a host with hundreds of guests, those of an hour are too many."""
    run = applied(parts, plan)
    clock.forward(400)
    expected, whole = parts.service.outcome(run.id), agent.histories

    def bounded(begin, end, step, subject, series=()):
        if not 0 < len(series) <= most:
            raise Invalid("step", step, "fewer series")
        return whole(begin, end, step, subject, series)

    agent.measures = bounded
    assert parts.service.outcome(run.id) == expected


def test_a_stored_outcome_stays_when_the_history_has_aged(parts, plan, clock, agent):
    run = applied(parts, plan)
    passes(parts, clock, 320)
    agent.histories = Ring({}, lambda *_: None)
    assert parts.service.outcome(run.id).measures[0].steps_after == 59


def test_an_outcome_is_not_final_before_its_time(parts, plan, clock, store):
    run = applied(parts, plan)
    passes(parts, clock, 100)
    found = parts.service.outcome(run.id)
    assert (found.is_final, found.measures[0].steps_after) == (False, 19)
    assert found.notes == ("the measures after the run are not complete yet",)
    assert store.outcomes.observed(run.id) is None


def test_an_outcome_is_stored_once_although_the_watch_goes_on(parts, plan, clock, store, load, agent, monkeypatch):
    """The run is worse, and cannot be undone yet."""
    stored = []
    load.worse_by, load.since = 200.0, NOON

    def silent(*_):
        raise HostUnreachable("h1", "its agent does not answer")

    monkeypatch.setattr(agent, "rollback", silent)
    monkeypatch.setattr(store.outcomes, "put_observed", lambda found: (stored.append(found), put(found)))
    put = type(store.outcomes).put_observed.__get__(store.outcomes)
    run = applied(parts, plan, watch_seconds=30, undo_if_worse=True)
    passes(parts, clock, 330)
    assert parts.service.outcome(run.id).watch.state == "watching"
    assert len(stored) == 1


def test_an_unforeseen_error_in_one_outcome_leaves_the_others_alone(parts, plan, clock, store, monkeypatch):
    change = plan.changes[0]
    thread = replace(change.before[0], tid=201)
    other = replace(change, target=replace(change.target, owner=DB, name="db1"), before=(thread,))
    store.plans.add(replace(plan, id="plan-4", changes=(other,)), NOON)
    first, second = applied(parts, plan), applied(parts, replace(plan, id="plan-4"))
    put = type(store.outcomes).put_observed.__get__(store.outcomes)

    def fail(found):
        if found.run == bad:
            raise ValueError("a mistake in this program")
        put(found)

    bad = next(iter(store.outcomes.due("h1", NOON - timedelta(days=1), ""))).id
    monkeypatch.setattr(store.outcomes, "put_observed", fail)
    passes(parts, clock, 330)
    stored = {run.id for run in (first, second) if store.outcomes.observed(run.id)}
    assert stored == {first.id, second.id} - {bad}


def test_an_unforeseen_error_in_each_pass_is_not_logged_in_each(parts, plan, clock, store, monkeypatch, caplog):
    def fail(_found):
        raise ValueError("a mistake in this program")

    applied(parts, plan)
    monkeypatch.setattr(store.outcomes, "put_observed", fail)
    passes(parts, clock, 330)
    assert len([each for each in caplog.records if each.exc_info]) == 1


@pytest.mark.parametrize("owner", ["policies", "outcomes"])
def test_a_host_whose_runs_cannot_be_found_does_not_keep_those_of_later_hosts(
    agent, store, clock, plan, monkeypatch, owner
):
    name = {"policies": "setback", "outcomes": "due"}[owner]
    usual = getattr(getattr(store, owner), name)

    def find(host, *arguments):
        if host == "h0":
            raise ValueError("a mistake in this program")
        return usual(host, *arguments)

    with closing(ServiceParts({"h0": agent, "h1": agent}, store, clock, lambda: uuid.uuid4().hex[:12], 0.0)) as parts:
        run = applied(parts, plan)
        clock.forward(330)
        monkeypatch.setattr(getattr(store, owner), name, find)
        with pytest.raises(ValueError, match="a mistake"):
            parts.outcomes.make_pass()
        assert store.outcomes.observed(run.id)


def test_another_run_ends_the_measures_of_the_first_one(parts, plan, clock):
    run = applied(parts, plan)
    passes(parts, clock, 60)
    undo = parts.service.rollback(run.id, ANN)
    list(parts.service.follow(undo.id))
    clock.forward(60)
    found = parts.service.outcome(run.id)
    assert (found.end, found.is_final) == (NOON + timedelta(seconds=60), True)
    assert found.notes == (f"run {undo.id} changed the host then",)
    assert parts.service.outcome(undo.id).begin == NOON
    assert parts.service.outcome(undo.id).expected == ()


def test_a_history_without_values_is_named_and_nothing_is_guessed(parts, plan, clock, load):
    load.missing = lambda at: at > NOON
    run = applied(parts, plan)
    clock.forward(400)
    found = parts.service.outcome(run.id)
    assert {each.guests for each in found.measures} == {None}
    assert found.notes == (
        "the history has no whole steps of 5 s after the run",
        f"not known on both sides of the run: {', '.join(measure.name for measure in (*CORE, *TRAFFIC))}",
    )


def test_a_host_without_a_history_says_so(parts, plan, clock, agent):
    def nothing(*_):
        raise NotFound("measures", "of this host: `pinner serve` keeps them")

    agent.histories = nothing
    run = applied(parts, plan)
    clock.forward(400)
    assert "`pinner serve` keeps them" in parts.service.outcome(run.id).notes[0]


def test_a_purged_run_takes_its_outcome_with_it(parts, plan, clock, store):
    run = applied(parts, plan)
    passes(parts, clock, 320)
    assert store.outcomes.observed(run.id) is not None
    assert store.retention.purge_runs(clock.at + timedelta(days=1), lambda _: False) == 1
    assert store.outcomes.observed(run.id) is None
