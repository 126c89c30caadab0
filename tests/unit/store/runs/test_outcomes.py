"""The outcomes of runs in each database."""

from dataclasses import replace
from datetime import timedelta

from support.values import NOON, make_entries, make_run

from pinner.model.outcome.outcome import MEASURES, Comparison, ObservedMeasure, RunOutcome, Watch
from pinner.model.run.audit import AuditAction, Caller, audit_event
from pinner.store.runs.outcomes import Outcomes
from pinner.store.runs.runs import Runs

MEASURE = ObservedMeasure(MEASURES[0], 60, 58, Comparison(1.0, 2.0, 1.0, 0.9), None)
OUTCOME = RunOutcome("run-1", "observed, not tested", (), ("web1",), (), NOON, NOON, 5, (MEASURE,), ("note",), True)
WATCH = Watch("not_worse", NOON, "no measure became worse")
EVENT = audit_event(Caller("ann", "cli", ""), NOON, AuditAction.RUN_WATCH, "h1", "run-1", "not_worse")


def test_an_outcome_is_due_until_it_and_the_end_of_its_watch_are_stored(engine):
    runs, outcomes = Runs(engine), Outcomes(engine)
    watched = make_run(state="applied", ended_at=NOON, watch_seconds=30, undo_if_worse=True)
    runs.add(watched, make_entries())
    runs.add(make_run("run-2", state="applied", ended_at=NOON))  # it changed nothing
    assert outcomes.due("h1", NOON) == (watched,)
    assert outcomes.due("h1", NOON + timedelta(seconds=1)) == outcomes.due("h2", NOON) == ()
    outcomes.put_observed(OUTCOME)
    assert outcomes.due("h1", NOON) == (watched,)
    outcomes.put_watch("run-1", WATCH, EVENT)
    assert outcomes.due("h1", NOON) == ()
    assert (outcomes.observed("run-1"), outcomes.watch("run-1")) == (OUTCOME, WATCH)
    assert (outcomes.observed("run-2"), outcomes.watch("run-2")) == (None, None)


def test_the_end_of_a_watch_replaces_an_earlier_one(engine):
    Runs(engine).add(make_run(), make_entries())
    outcomes = Outcomes(engine)
    for state in ("worse", "stopped"):
        outcomes.put_watch("run-1", replace(WATCH, state=state), EVENT)
    assert outcomes.watch("run-1").state == "stopped"


def test_a_run_whose_stored_watch_goes_on_is_due_however_old_it_is(engine):
    runs, outcomes = Runs(engine), Outcomes(engine)
    watched = make_run(state="applied", ended_at=NOON, watch_seconds=30, undo_if_worse=True)
    runs.add(watched, make_entries())
    outcomes.put_observed(OUTCOME)
    outcomes.put_watch("run-1", Watch("watching", NOON, "worse than before the run"))
    assert outcomes.due("h1", NOON + timedelta(days=30)) == (watched,)
    outcomes.put_watch("run-1", replace(WATCH, why='it said "state":"watching"'), EVENT)
    assert outcomes.due("h1", NOON) == ()
