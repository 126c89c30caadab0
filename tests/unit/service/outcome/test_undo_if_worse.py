"""A policy with undo_if_worse: it applies once, undoes once, and is quiet then."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.fakes.ring import Ring
from support.fakes.watched_host import (
    ANN,
    GUEST,
    HOST,
    UNDOING,
    applied_again,
    enforced,
    is_placed,
    kinds,
    passes,
    records,
    refuse_earlier_runs,
    runs,
    wait_for_runs,
)
from support.hosts import cpus, guest

from pinner.model.errors import NotFound
from pinner.model.event import GuestEvent
from pinner.model.outcome.outcome import CORE, TRAFFIC
from pinner.model.plan.request import Request
from pinner.model.policy import Policy
from pinner.model.run.journal import DEFAULT_WATCH_SECONDS, ApplyOptions


def test_a_policy_does_not_watch_by_default(parts):
    run = enforced(parts, Policy(Request(), "enforce"))
    assert (run.watch_seconds, run.undo_if_worse) == (0, False)


def test_a_run_of_the_policy_that_is_worse_is_undone_once_and_the_policy_is_quiet_then(parts, clock, load, agent):
    load.worse_by = 200.0
    run = enforced(parts)
    assert (run.watch_seconds, run.undo_if_worse, is_placed(agent)) == (DEFAULT_WATCH_SECONDS, True, True)
    passes(parts, clock, 90)
    assert kinds(parts) == ["apply", "rollback"]
    assert not is_placed(agent)
    assert parts.service.policy(HOST) == replace(UNDOING, mode="propose")
    watch = parts.service.outcome(run.id).watch
    assert (watch.state, watch.rollback) == ("worse", runs(parts)[0].id)


def test_the_operator_is_told_why_the_policy_enforces_no_longer(parts, clock, load, agent):
    load.worse_by = 200.0
    run = enforced(parts)
    assert parts.service.drift(HOST).setback is None
    passes(parts, clock, 30)
    report = parts.service.drift(HOST)
    assert (report.mode, report.setback.run) == ("propose", run.id)
    assert report.setback.why.startswith("worse than before the run, after ")
    assert report.proposed != ""
    assert parts.service.setback(HOST) == report.setback
    first, second = records(parts, "policy.set")
    assert (second.actor, second.origin) == ("policy", f"the watch of run {run.id}")
    assert second.result == f"set to propose, because of run {run.id}: {report.setback.why}"
    assert (second.before, second.after) == (first.after, first.after.replace("enforce", "propose"))
    assert [each.kind for each in agent.host_events(0, 0.0, ())].count("policy-set") == 2
    (ended,) = records(parts, "run.watch")
    assert ended.result.startswith(f"worse: {report.setback.why}; run run-")


def test_a_policy_that_a_person_sets_again_enforces_and_is_watched_again(parts, clock, load, agent):
    load.worse_by = 200.0
    enforced(parts)
    passes(parts, clock, 60)
    load.worse_by = 0.0
    run = enforced(parts)
    assert (run.undo_if_worse, parts.service.drift(HOST).setback) == (True, None)
    passes(parts, clock, 120)
    assert kinds(parts) == ["apply", "rollback", "apply"]
    assert (parts.service.policy(HOST), is_placed(agent)) == (UNDOING, True)


def test_a_run_of_the_policy_that_makes_no_difference_stays(parts, clock, agent):
    run = enforced(parts)
    passes(parts, clock, 120)
    assert parts.service.outcome(run.id).watch.state == "not_worse"
    assert (parts.service.policy(HOST), kinds(parts), is_placed(agent)) == (UNDOING, ["apply"], True)


def test_a_host_that_measures_nothing_is_placed_and_not_watched(parts, clock, load, agent):
    load.is_known = False
    run = enforced(parts)
    passes(parts, clock, 60)
    watch = parts.service.outcome(run.id).watch
    assert (watch.state, watch.why) == ("stopped", "nothing was measured before the run, or after it")
    assert (parts.service.policy(HOST), is_placed(agent)) == (UNDOING, True)


@pytest.mark.parametrize(("known", "state"), [(79, "stopped"), (80, "worse")])
def test_a_policy_places_guests_although_the_server_is_young_and_watches_as_soon_as_it_can(
    parts, clock, load, agent, known, state
):
    """The step beside the run does not count."""
    load.worse_by, load.known_since = 200.0, clock.at - timedelta(seconds=5 * (known + 1))
    run = enforced(parts)
    assert (is_placed(agent), run.state, run.watch_seconds) == (True, "applied", DEFAULT_WATCH_SECONDS)
    passes(parts, clock, 60)
    watch = parts.service.outcome(run.id).watch
    assert (watch.state, parts.service.policy(HOST) == UNDOING) == (state, state == "stopped")
    if state == "stopped":
        judged = [measure.name for measure in (*CORE, *TRAFFIC)]
        short = ", ".join(f"{name} (1 of 80)" for name in judged)
        assert watch.why == f"not watched, because steps before the run are missing: {short}; nothing was undone"


def test_a_policy_that_no_longer_undoes_keeps_the_run(parts, clock, load, agent):
    load.worse_by = 200.0
    run = enforced(parts)
    parts.service.set_policy(HOST, replace(UNDOING, undo_if_worse=False), ANN)
    passes(parts, clock, 60)
    watch = parts.service.outcome(run.id).watch
    assert (watch.state, watch.rollback, is_placed(agent)) == ("worse", "", True)
    assert "it cannot be undone" in watch.why
    assert parts.service.policy(HOST).mode == "enforce"


@pytest.mark.parametrize("mode", ["observe", "propose", None])
def test_a_mode_that_a_person_set_meanwhile_stays(parts, clock, load, agent, mode):
    load.worse_by = 200.0
    enforced(parts)
    if mode is None:
        parts.service.delete_policy(HOST, ANN)
    else:
        parts.service.set_policy(HOST, replace(UNDOING, mode=mode), ANN)
    passes(parts, clock, 60)
    assert (kinds(parts), is_placed(agent)) == (["apply", "rollback"], False)
    if mode is None:
        with pytest.raises(NotFound):
            parts.service.policy(HOST)
    else:
        assert parts.service.policy(HOST).mode == mode
        assert parts.service.drift(HOST).setback is None


def start_guests(parts, clock, agent, every, count):
    """A guest starts every few seconds, and the policy places it by a run of its own."""
    for number in range(2, count + 2):
        passes(parts, clock, every)
        new = guest(number, 1, cpus("0-15"))
        agent.host.taken = replace(agent.host.taken, guests=(*agent.host.taken.guests, new))
        parts.reconciler.reconcile(HOST, "guest-started")
        wait_for_runs(parts)


OFTEN = pytest.mark.parametrize(
    "every", [5, *(pytest.param(n, marks=pytest.mark.slow("runs of a policy: other distances")) for n in (10, 15, 20))]
)


@OFTEN
def test_frequent_runs_of_the_policy_do_not_hide_that_the_first_one_is_worse(parts, clock, load, agent, every):
    load.worse_by = 200.0
    run = enforced(parts)
    start_guests(parts, clock, agent, every, 8)
    passes(parts, clock, 60)
    assert parts.service.outcome(run.id).watch.state == "worse"
    assert parts.service.policy(HOST) == replace(UNDOING, mode="propose")
    assert parts.service.run(run.id).state == "rolled_back"
    assert not is_placed(agent)


@OFTEN
def test_frequent_runs_that_make_no_difference_stay(parts, clock, agent, every):
    enforced(parts)
    start_guests(parts, clock, agent, every, 8)
    passes(parts, clock, 60)
    assert kinds(parts) == ["apply"] * 9
    assert (parts.service.policy(HOST), is_placed(agent)) == (UNDOING, True)
    states = {parts.service.outcome(each.id).watch.state for each in runs(parts)}
    assert "worse" not in states


def test_each_of_two_runs_that_are_worse_is_undone(parts, clock, load, agent):
    """The rollback of the first one does not end the watch of the second one."""
    other = guest(7, 1, cpus("0-15"))
    agent.histories = Ring({GUEST.uuid: GUEST.name, other.uuid: other.name}, load)
    load.worse_by = 200.0
    first = enforced(parts)
    load.others[other.uuid] = clock.at + timedelta(seconds=10)
    passes(parts, clock, 10)
    agent.host.taken = replace(agent.host.taken, guests=(*agent.host.taken.guests, other))
    parts.reconciler.reconcile(HOST, "guest-started")
    second = runs(parts)[0]
    assert (second.kind, second.id != first.id) == ("apply", True)
    passes(parts, clock, 60)
    assert [parts.service.run(each.id).state for each in (first, second)] == ["rolled_back"] * 2
    assert [parts.service.outcome(each.id).watch.state for each in (first, second)] == ["worse"] * 2


def test_a_run_whose_targets_the_policy_changed_again_is_undone_after_the_later_runs(
    parts, clock, load, agent, monkeypatch
):
    load.worse_by = 200.0
    refuse_earlier_runs(parts, agent, monkeypatch)
    first = enforced(parts)
    second, third = (applied_again(parts, clock, agent) for _ in range(2))
    assert len({first.id, second.id, third.id}) == 3
    passes(parts, clock, 90)
    assert [parts.service.run(each.id).state for each in (first, second, third)] == ["rolled_back"] * 3
    undone = [run.undoes for run in reversed(runs(parts)) if run.undoes and run.state == "rolled_back"]
    assert undone == [third.id, second.id, first.id]
    assert (parts.service.policy(HOST).mode, is_placed(agent)) == ("propose", False)
    assert parts.service.outcome(first.id).watch.rollback == runs(parts)[0].id


def test_a_run_of_a_person_ends_the_watch_of_a_run_of_the_policy(parts, clock, load, agent):
    load.worse_by = 200.0
    run = enforced(parts)
    passes(parts, clock, 5)
    agent.host.move(GUEST.vcpus[0].thread.tid, "0-15")
    plan = parts.service.plan(HOST, Request(), None, 0.0, ANN)
    person = parts.service.apply(plan.id, ApplyOptions(), ANN)
    wait_for_runs(parts)
    passes(parts, clock, 60)
    watch = parts.service.outcome(run.id).watch
    assert watch.state == "stopped"
    assert watch.why.startswith(f"run {person.id} changed the host then")


def test_a_release_of_another_guest_does_not_end_the_watch(parts, clock, load, agent):
    other = guest(7, 1, cpus("0-15"))
    agent.host.taken = replace(agent.host.taken, guests=(GUEST, other))
    load.worse_by = 200.0
    policy = replace(UNDOING, request=Request(guests=(GUEST.name,)))
    placed = parts.service.plan(HOST, Request(guests=(other.name,)), None, 0.0, ANN)
    parts.service.apply(placed.id, ApplyOptions(), ANN)
    wait_for_runs(parts)
    clock.at += timedelta(minutes=8)
    load.since = clock.at
    run = enforced(parts, policy)
    passes(parts, clock, 5)
    leaving = GuestEvent(other.uuid, "leaving", "instance.live_migration_pre.start", "nova", clock.at)
    released = parts.service.guest_event(HOST, leaving, ANN).run
    assert parts.service.run(released).kind == "release"
    passes(parts, clock, 60)
    assert parts.service.outcome(run.id).watch.state == "worse"
