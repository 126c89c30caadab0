"""The watch of a run, which may undo it."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.fakes.ring import Ring
from support.fakes.watched_run import ANN, DB, WEB, applied, passes
from support.values import NOON

from pinner.model.errors import HostUnreachable, Invalid, NotFound, TooFewMeasures
from pinner.model.outcome.outcome import CORE, TRAFFIC
from pinner.model.page import PageRequest
from pinner.model.run.audit import Caller
from pinner.model.run.journal import DEFAULT_WATCH_SECONDS, MIN_WATCH_SECONDS, ApplyOptions


def at_first_write(agent, act):
    """Call ``act`` once, when a run changes the host."""
    wait = agent.host.before_write

    def write(made):
        agent.host.before_write = wait
        act()
        wait(made)

    agent.host.before_write = write


def records(parts, action):
    found = parts.service.audit(None, None, None, PageRequest(direction="asc")).items
    return [each for each in found if each.action == action]


def test_a_run_that_is_worse_is_rolled_back_within_the_watch(parts, plan, clock, load, agent):
    load.worse_by, load.since = 200.0, NOON
    run = applied(parts, plan, watch_seconds=30, undo_if_worse=True)
    assert agent.host.mask(101) == "1"
    assert parts.service.outcome(run.id).watch.state == "watching"
    passes(parts, clock, 30)
    (undo,) = [each for each in parts.service.runs(None, PageRequest()).items if each.kind == "rollback"]
    list(parts.service.follow(undo.id))
    assert (undo.undoes, undo.origin, agent.host.mask(101)) == (run.id, f"the watch of run {run.id}", "0-3")
    watch = parts.service.outcome(run.id).watch
    assert (watch.state, watch.rollback) == ("worse", undo.id)
    (record,) = records(parts, "run.watch")
    assert (record.subject, record.actor) == (run.id, "ann")
    assert record.result.startswith("worse: worse than before the run, after ")
    assert record.result.endswith(f"run_delay; run {undo.id} undoes it")


def test_without_undo_a_worse_run_is_only_named(parts, plan, clock, load, agent):
    load.worse_by, load.since = 200.0, NOON
    run = applied(parts, plan, watch_seconds=30)
    passes(parts, clock, 60)
    watch = parts.service.outcome(run.id).watch
    assert (watch.state, watch.rollback, agent.host.mask(101)) == ("worse", "", "1")


def test_a_run_that_makes_no_difference_stays_and_is_not_praised(parts, plan, clock, agent):
    run = applied(parts, plan, watch_seconds=30, undo_if_worse=True)
    passes(parts, clock, 120)
    watch = parts.service.outcome(run.id).watch
    assert (watch.state, watch.why) == ("not_worse", "no measure became worse for certain, in 8 steps")
    assert agent.host.mask(101) == "1"
    assert len(records(parts, "run.watch")) == 1


def test_a_watch_goes_on_after_a_restart_of_the_server(compose_parts, plan, clock, load, agent):
    load.worse_by, load.since = 200.0, NOON
    with compose_parts() as parts:
        run = applied(parts, plan, watch_seconds=60, undo_if_worse=True)
        passes(parts, clock, 5)
    clock.forward(50)
    with compose_parts() as parts:
        parts.outcomes.make_pass()
        assert parts.service.outcome(run.id).watch.state == "worse"


def test_a_server_that_starts_too_late_says_that_nobody_watched(compose_parts, plan, clock, load, agent):
    load.worse_by, load.since = 200.0, NOON
    with compose_parts() as parts:
        run = applied(parts, plan, watch_seconds=60, undo_if_worse=True)
    clock.forward(3600)
    with compose_parts() as parts:
        parts.outcomes.make_pass()
        watch = parts.service.outcome(run.id).watch
        assert (watch.state, watch.rollback) == ("stopped", "")
        assert watch.why == "no server looked in time: it is 3525 s too late; nothing was undone"
        assert agent.host.mask(101) == "1"


def test_a_clock_that_is_set_back_in_a_run_ends_its_watch(parts, plan, clock, load, agent):
    """Steps from before and after the run have the same times then."""
    load.worse_by, load.since = 200.0, NOON
    at_first_write(agent, lambda: clock.forward(-120))
    run = applied(parts, plan, watch_seconds=30, undo_if_worse=True)
    assert run.ended_at < run.started_at
    clock.forward(110)
    parts.outcomes.make_pass()
    watch = parts.service.outcome(run.id).watch
    assert (watch.state, agent.host.mask(101)) == ("stopped", "1")
    assert watch.why.startswith("the clock was set back to 2026-")
    assert watch.why.endswith(", before the begin of the run; nothing was undone")


@pytest.mark.parametrize(("last", "known"), [(20, 3), (10, 1)])
def test_a_watch_with_a_gap_in_the_history_does_not_say_that_the_run_is_not_worse(
    parts, plan, clock, load, agent, last, known
):
    load.worse_by, load.since = 200.0, NOON
    load.missing = lambda at: at > NOON + timedelta(seconds=last)
    run = applied(parts, plan, watch_seconds=30, undo_if_worse=True)
    passes(parts, clock, 120)
    watch = parts.service.outcome(run.id).watch
    assert (watch.state, agent.host.mask(101)) == ("stopped", "1")
    assert watch.why == f"only {known} of 4 steps after the run are known; nothing was undone"


@pytest.mark.parametrize("into_step", range(5))
@pytest.mark.parametrize("late", [5, 10])
def test_the_shortest_watch_finds_a_run_worse_wherever_in_a_step_it_ends(
    parts, plan, clock, load, agent, into_step, late
):
    """A recorder completes a step with its next count, which may be a step later."""
    clock.forward(into_step)
    load.worse_by, load.since = 200.0, clock.at
    load.missing = lambda at: at > clock.at - timedelta(seconds=late)
    run = applied(parts, plan, watch_seconds=MIN_WATCH_SECONDS, undo_if_worse=True)
    passes(parts, clock, 60)
    watch = parts.service.outcome(run.id).watch
    assert (watch.state, agent.host.mask(101)) == ("worse", "0-3"), watch.why


def test_a_rollback_whose_reason_was_not_stored_is_known_as_that_of_the_watch(parts, plan, clock, load, store):
    load.worse_by, load.since = 200.0, NOON
    run = applied(parts, plan, watch_seconds=60, undo_if_worse=True)
    undo = parts.service.rollback(run.id, Caller("ann", f"the watch of run {run.id}", ""))
    list(parts.service.follow(undo.id))
    parts.outcomes.make_pass()
    assert (store.outcomes.watch(run.id).state, store.outcomes.watch(run.id).rollback) == ("worse", undo.id)


@pytest.mark.parametrize("all_runs", [False, True])
def test_a_run_that_a_person_rolls_back_is_not_watched_further(parts, plan, clock, all_runs):
    run, bob = applied(parts, plan, watch_seconds=60, undo_if_worse=True), replace(ANN, actor="bob")
    undo = parts.service.rollback_all(run.host, bob) if all_runs else parts.service.rollback(run.id, bob)
    list(parts.service.follow(undo.id))
    parts.outcomes.make_pass()
    watch = parts.service.outcome(run.id).watch
    assert (watch.state, watch.why) == ("stopped", "the run is rolled_back, by bob")


def test_an_agent_that_does_not_answer_is_asked_again(parts, plan, clock, load, agent):
    load.worse_by, load.since = 200.0, NOON
    run, known = applied(parts, plan, watch_seconds=30, undo_if_worse=True), agent.histories

    def silent(*_):
        raise HostUnreachable("h1", "it does not answer")

    agent.histories = silent
    passes(parts, clock, 20)
    agent.histories = known
    passes(parts, clock, 15)
    assert parts.service.outcome(run.id).watch.state == "worse"


def test_a_watch_without_measures_is_refused_before_the_run(parts, plan, load):
    load.missing = lambda at: True
    with pytest.raises(NotFound, match="measures"):
        parts.service.apply(plan.id, ApplyOptions(watch_seconds=30), ANN)
    assert parts.service.runs(None, PageRequest()).items == ()


@pytest.mark.parametrize(("known", "seconds"), [(2, 390), (79, 5)])
def test_a_watch_that_could_undo_nothing_is_refused_before_the_run(parts, plan, load, known, seconds):
    """The step beside the run does not count."""
    load.missing = lambda at: at <= NOON - timedelta(seconds=5 * (known + 1))
    with pytest.raises(TooFewMeasures, match=f"run_delay \\({80 - known} of 80\\).*try again in {seconds} s"):
        parts.service.apply(plan.id, ApplyOptions(undo_if_worse=True), ANN)
    assert parts.service.runs(None, PageRequest()).items == ()


def test_a_watch_that_undoes_a_run_begins_with_the_least_number_of_steps(parts, plan, load):
    load.missing = lambda at: at <= NOON - timedelta(seconds=5 * 81)
    run = applied(parts, plan, watch_seconds=30, undo_if_worse=True)
    assert parts.service.outcome(run.id).watch.why == "the guests are watched for 30 s"


@pytest.mark.parametrize(("seconds", "least"), [(15, 50), (30, 80), (60, 140), (240, 500)])
def test_a_longer_watch_needs_a_longer_time_before_the_run(parts, plan, load, seconds, least):
    """Ten times the steps that it compares. An hour suffices for the longest one."""
    load.missing = lambda at: at <= NOON - timedelta(seconds=5 * least)
    with pytest.raises(TooFewMeasures, match=f"run_delay \\(1 of {least}\\).*try again in 5 s"):
        parts.service.apply(plan.id, ApplyOptions(watch_seconds=seconds, undo_if_worse=True), ANN)
    load.missing = lambda at: at <= NOON - timedelta(seconds=5 * (least + 1))
    assert applied(parts, plan, watch_seconds=seconds, undo_if_worse=True).state == "applied"


def test_the_longest_watch_finds_a_harm_at_its_end_and_after_it(compose_parts, plan, clock, load, agent):
    """The history must still have the time before the run then."""
    load.worse_by, load.since = 200.0, NOON + timedelta(seconds=220)
    load.missing = lambda at: at <= clock.at - timedelta(hours=1)
    with compose_parts() as parts:
        run = applied(parts, plan, watch_seconds=240, undo_if_worse=True)
        passes(parts, clock, 10)
        assert parts.service.outcome(run.id).watch.why == "the guests are watched for 240 s"
    clock.forward(530)
    with compose_parts() as parts:
        parts.outcomes.make_pass()
        assert parts.service.outcome(run.id).watch.state == "worse"


def test_a_burst_most_of_an_hour_ago_is_no_reason_to_stop_a_run_with_such_a_burst(parts, plan, clock, agent, load):
    load.worse_by, load.since = 200.0, NOON

    def value(subject, series, at):
        is_burst = NOON - timedelta(minutes=53) < at <= NOON - timedelta(minutes=52)
        return 220.0 if is_burst and series == "delay_vcpu" else load(subject, series, at)

    agent.histories = Ring({WEB: "web1", DB: "db1"}, value)
    run = applied(parts, plan, watch_seconds=30, undo_if_worse=True)
    passes(parts, clock, 60)
    assert parts.service.outcome(run.id).watch.state == "not_worse"


def test_a_run_that_takes_long_leaves_less_time_before_it(parts, plan, clock, agent, load):
    """The history has fine steps of an hour."""
    load.worse_by, load.since = 200.0, NOON
    load.missing = lambda at: at <= clock.at - timedelta(hours=1)
    at_first_write(agent, lambda: clock.forward(3000))
    run = applied(parts, plan, watch_seconds=30, undo_if_worse=True)
    passes(parts, clock, 60)
    assert parts.service.outcome(run.id).watch.state == "worse"


def test_a_watch_that_sees_no_measure_says_so_at_once_and_does_not_say_not_worse(parts, plan, clock, load):
    """Without undo_if_worse it is accepted, because the measures may be shown all the same."""
    load.missing = lambda at: at <= NOON - timedelta(seconds=5 * 6)
    run = applied(parts, plan, watch_seconds=30)
    blind = ", ".join(f"{measure.name} (75 of 80)" for measure in (*CORE, *TRAFFIC))
    why = f"not watched, because steps before the run are missing: {blind}"
    assert parts.service.outcome(run.id).watch.why == f"the guests are watched for 30 s; {why}"
    passes(parts, clock, 120)
    watch = parts.service.outcome(run.id).watch
    assert (watch.state, watch.why) == ("stopped", f"{why}; nothing was undone")


def test_a_watch_does_not_say_not_worse_where_no_watched_measure_is_known_later(parts, plan, clock, agent, load):
    """The drops and the delay have no steps before the run, and the host has none after it."""

    def value(subject, series, at):
        of_host = series in ("pressure", "softnet_drops")
        is_unknown = at > NOON if of_host else at <= NOON - timedelta(seconds=30)
        return None if is_unknown else load(subject, series, at)

    agent.histories = Ring({WEB: "web1", DB: "db1"}, value)
    run = applied(parts, plan, watch_seconds=30, undo_if_worse=True)
    passes(parts, clock, 120)
    watch = parts.service.outcome(run.id).watch
    assert (watch.state, watch.why) == ("stopped", "only 0 of 4 steps after the run are known; nothing was undone")


def test_a_new_guest_is_named_and_the_host_is_watched(parts, plan, agent, load):
    agent.histories = Ring(
        {WEB: "web1", DB: "db1"},
        lambda subject, series, at: (
            None if subject == WEB and at <= NOON - timedelta(seconds=30) else load(subject, series, at)
        ),
    )
    run = applied(parts, plan, watch_seconds=30, undo_if_worse=True)
    blind = ", ".join(f"{name} (75 of 80)" for name in ("run_delay", "drops", *(measure.name for measure in TRAFFIC)))
    why = f"not watched, because steps before the run are missing: {blind}"
    assert parts.service.outcome(run.id).watch.why == f"the guests are watched for 30 s; {why}"


def test_a_watch_whose_agent_does_not_answer_says_so(parts, plan, clock, agent, store, monkeypatch):
    run = applied(parts, plan, watch_seconds=240)
    passes(parts, clock, 100)
    # A later run of a policy completes the outcome of an earlier one during its watch.
    store.outcomes.put_observed(parts.service.outcome(run.id))

    def silent(*_):
        raise HostUnreachable("h1", "its agent does not answer")

    monkeypatch.setattr(agent, "measures", silent)
    watch = parts.service.outcome(run.id).watch
    assert watch.state == "watching"
    assert "what it sees is not known now: host h1: its agent does not answer" in watch.why


def test_a_plan_without_changes_needs_no_measures(parts, plan, store, load):
    made = replace(plan, id="plan-4", changes=())
    store.plans.add(made, NOON)
    load.missing = lambda at: at <= NOON - timedelta(seconds=30)
    assert applied(parts, made, undo_if_worse=True).state == "applied"


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("guest-reset", "reset"),
        ("guest-paused", "paused"),
        ("guest-stopped", "stopped"),
        ("guest-started", "started"),
    ],
)
def test_a_guest_that_is_reset_or_paused_is_no_reason_to_undo_the_run(parts, plan, clock, load, agent, kind, what):
    """Its operating system boots, or its vCPUs have waited: the run is not the cause."""
    run = applied(parts, plan, watch_seconds=60, undo_if_worse=True)
    passes(parts, clock, 10)
    agent.event_queue.publish(kind, WEB)
    load.worse_by, load.since = 200.0, clock.at
    passes(parts, clock, 90)
    watch = parts.service.outcome(run.id).watch
    why = f"guest web1 was {what} then; not worse until then, in 1 steps"
    assert (watch.state, watch.why, agent.host.mask(101)) == ("stopped", why, "1")
    found = parts.service.outcome(run.id)
    assert (found.end, found.notes[0]) == (NOON + timedelta(seconds=10), f"guest web1 was {what} then")


def test_a_guest_that_the_run_does_not_change_may_be_reset(parts, plan, clock, load, agent):
    run = applied(parts, plan, watch_seconds=60, undo_if_worse=True)
    agent.event_queue.publish("guest-reset", DB)
    agent.event_queue.publish("guest-changed", WEB)
    load.worse_by, load.since = 200.0, clock.at
    passes(parts, clock, 60)
    assert parts.service.outcome(run.id).watch.state == "worse"


def test_the_measures_before_a_run_begin_after_a_reset_of_its_guest(parts, plan, clock, agent):
    clock.at = NOON - timedelta(seconds=60)
    agent.event_queue.publish("guest-reset", WEB)
    clock.at = NOON
    run = applied(parts, plan)
    clock.forward(400)
    found = parts.service.outcome(run.id)
    assert (found.begin, found.measures[0].steps_before) == (NOON - timedelta(seconds=60), 11)


def test_measures_that_end_with_the_run_stop_the_watch(parts, plan, clock, load, agent):
    run = applied(parts, plan, watch_seconds=30, undo_if_worse=True)
    load.missing = lambda at: at > NOON
    passes(parts, clock, 60)
    watch = parts.service.outcome(run.id).watch
    assert (watch.state, watch.why) == ("stopped", "nothing was measured before the run, or after it")
    assert agent.host.mask(101) == "1"


@pytest.mark.parametrize("seconds", [5, 301, -1])
def test_an_impossible_watch_is_refused(parts, plan, seconds):
    with pytest.raises(Invalid):
        parts.service.apply(plan.id, ApplyOptions(watch_seconds=seconds), ANN)


def test_a_run_that_is_undone_if_worse_is_watched(parts, plan):
    assert applied(parts, plan, undo_if_worse=True).watch_seconds == DEFAULT_WATCH_SECONDS
