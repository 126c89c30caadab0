"""A policy with undo_if_worse: it applies once, undoes once, and is quiet then."""

import uuid
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.fakes.ring import Ring
from support.hosts import cpus, guest, plain, process, snapshot

from pinner.model.errors import HostBusy, HostUnreachable, Invalid, NotFound, RunConflict
from pinner.model.event import GuestEvent
from pinner.model.page import PageRequest
from pinner.model.plan.request import Request
from pinner.model.policy import Policy
from pinner.model.run.audit import Caller
from pinner.model.run.journal import DEFAULT_WATCH_SECONDS, ApplyOptions
from pinner.service.local import ServiceParts

ANN = Caller("ann", "10.0.0.1", "req-1")
HOST = "compute1"
UNDOING = Policy(Request(), "enforce", undo_if_worse=True)
GUEST = guest(1, 2, cpus("0-15"))


class Load:
    """The history of a host. What the policy does adds ``worse_by`` to the delay of the guest."""

    def __init__(self, clock):
        self.worse_by = 0.0
        self.since = clock.at
        self.is_known = True
        self.known_since = clock.at - timedelta(days=1)
        self.others = {}
        """Other guests that become worse, too: UUID to the time since which they are."""

    def __call__(self, subject, series, at):
        noise = at.timestamp() // 5 * 7 % 5
        if not self.is_known or at <= self.known_since:
            return None
        if subject == GUEST.uuid and series == "delay_vcpu":
            return 20.0 + noise + (self.worse_by if at > self.since else 0.0)
        if subject in self.others and series == "delay_vcpu":
            return 20.0 + noise + (200.0 if at > self.others[subject] else 0.0)
        return noise


@pytest.fixture
def load(clock):
    return Load(clock)


@pytest.fixture
def agent(tmp_path, clock, load):
    daemon = process(500, 50.0, "0-15", "0-15", name="daemon")
    made = HostedAgent(tmp_path / "agent", snapshot(plain(16), [GUEST], [daemon]), clock)
    made.histories = Ring({GUEST.uuid: GUEST.name}, load)
    yield made
    made.journal.close()


@pytest.fixture
def restart(agent, store, clock):
    """Starts a server."""
    return lambda: closing(ServiceParts({HOST: agent}, store, clock, lambda: uuid.uuid4().hex[:12], 5.0))


@pytest.fixture
def parts(restart):
    with restart() as made:
        yield made


def enforced(parts, policy=UNDOING):
    """The run by which the policy places the host."""
    parts.service.set_policy(HOST, policy, ANN)
    parts.reconciler.reconcile(HOST, "started")
    return runs(parts)[0]


def runs(parts):
    return parts.service.runs(HOST, PageRequest()).items


def kinds(parts):
    return [run.kind for run in reversed(runs(parts))]


def passes(parts, clock, seconds):
    """The server works for a while: it reconciles, too."""
    for _ in range(0, seconds, 5):
        clock.at += timedelta(seconds=5)
        parts.outcomes.make_pass()
        wait_for_runs(parts)
        parts.reconciler.reconcile(HOST, "resync", measured=True)


def wait_for_runs(parts):
    for run in runs(parts):
        if run.state == "running":
            list(parts.service.follow(run.id))


def is_placed(agent):
    return str(agent.snapshot(0).guests[0].vcpus[0].thread.affinity) != "0-15"


def records(parts, *actions):
    found = parts.service.audit(None, None, None, PageRequest(200, direction="asc")).items
    return [each for each in found if each.action in actions]


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
        short = "run_delay (1 of 80), drops (1 of 80), softnet_drops (1 of 80), pressure (1 of 80)"
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


def applied_again(parts, clock, agent, seconds=5):
    """The run by which the policy corrects what another program has moved."""
    passes(parts, clock, seconds)
    agent.host.move(GUEST.vcpus[0].thread.tid, "0-15")
    parts.reconciler.reconcile(HOST, "moved")
    wait_for_runs(parts)
    return runs(parts)[0]


def refuse_earlier_runs(parts, agent, monkeypatch):
    """Refuse the rollback of a run whose target a later run has changed again. A real agent does that where the later
    run has given the target other CPUs."""
    rollback = agent.rollback

    def targets(run):
        return {entry.change.target.key for entry in agent.entries(run)}

    def refusing(run, progress):
        since = parts.service.run(run.undoes).started_at
        for later in runs(parts):
            is_in_place = later.kind == "apply" and later.state == "applied" and later.started_at > since
            if is_in_place and targets(run.undoes) & targets(later.id):
                raise RunConflict(run.undoes, "applied", f"run {later.id} has changed a target again since")
        return rollback(run, progress)

    monkeypatch.setattr(agent, "rollback", refusing)


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


class Killed(BaseException):
    """The process ends here."""


def die(*_, **__):
    raise Killed


def killed_at(parts, clock, monkeypatch, owner, method):
    """The server dies when it calls a method for the first time."""
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(owner, method, die)
        passes(parts, clock, 60)
    wait_for_runs(parts)


@pytest.mark.parametrize("late", [timedelta(), timedelta(hours=1), timedelta(days=3)])
def test_a_server_that_dies_between_setback_and_rollback_rolls_back_later(
    restart, store, clock, load, agent, monkeypatch, late
):
    load.worse_by = 200.0
    with restart() as parts:
        run = enforced(parts)
        killed_at(parts, clock, monkeypatch, parts.runs, "rollback")
        why = store.policies.setback(HOST).why
    assert (store.policies.get(HOST).mode, is_placed(agent)) == ("propose", True)
    clock.at += late
    load.is_known = not late  # the steps of that time are gone
    with restart() as parts:
        passes(parts, clock, 60)
        assert (kinds(parts), is_placed(agent)) == (["apply", "rollback"], False)
        watch = parts.service.outcome(run.id).watch
        assert (watch.state, watch.why, watch.rollback) == ("worse", why, runs(parts)[0].id)
        assert len(records(parts, "policy.set")) == 2


def test_a_server_that_dies_before_the_setback_finds_the_run_worse_again(
    restart, store, clock, load, agent, monkeypatch
):
    load.worse_by = 200.0
    with restart() as parts:
        enforced(parts)
        killed_at(parts, clock, monkeypatch, store.policies, "put")
    assert (store.policies.get(HOST).mode, is_placed(agent)) == ("enforce", True)
    with restart() as parts:
        passes(parts, clock, 60)
        assert (kinds(parts), is_placed(agent)) == (["apply", "rollback"], False)


def test_a_server_that_dies_after_the_rollback_stores_its_cause_later(restart, store, clock, load, agent, monkeypatch):
    load.worse_by = 200.0
    with restart() as parts:
        run = enforced(parts)
        killed_at(parts, clock, monkeypatch, store.outcomes, "put_watch")
    clock.at += timedelta(days=3)
    with restart() as parts:
        passes(parts, clock, 60)
        watch = parts.service.outcome(run.id).watch
        assert (watch.state, watch.why) == ("worse", store.policies.setback(HOST).why)
        assert (kinds(parts), is_placed(agent)) == (["apply", "rollback"], False)


def test_an_agent_that_does_not_answer_is_asked_for_the_rollback_again(parts, clock, load, agent, monkeypatch):
    load.worse_by = 200.0

    def refuse(*_):
        raise HostUnreachable(HOST, "its agent does not answer")

    enforced(parts)
    with monkeypatch.context() as patch:
        patch.setattr(agent, "rollback", refuse)
        passes(parts, clock, 60)
    assert (parts.service.policy(HOST).mode, is_placed(agent)) == ("propose", True)
    passes(parts, clock, 10)
    assert not is_placed(agent)
    assert len(records(parts, "policy.set")) == 2


def test_a_purged_run_leaves_the_setback(parts, store, clock, load):
    load.worse_by = 200.0
    run = enforced(parts)
    passes(parts, clock, 60)
    store.retention.purge_runs(clock.at + timedelta(days=1), lambda _: False)
    parts.outcomes.make_pass()
    assert parts.service.drift(HOST).setback.run == run.id


def unreachable(*_):
    raise HostUnreachable(HOST, "its agent does not answer")


def two_worse(parts, clock, load, agent):
    """Two runs of the policy. Both are found worse."""
    other = guest(7, 1, cpus("0-15"))
    agent.histories = Ring({GUEST.uuid: GUEST.name, other.uuid: other.name}, load)
    load.worse_by = 200.0
    first = enforced(parts)
    load.others[other.uuid] = clock.at + timedelta(seconds=10)
    passes(parts, clock, 10)
    agent.host.taken = replace(agent.host.taken, guests=(*agent.host.taken.guests, other))
    parts.reconciler.reconcile(HOST, "guest-started")
    return first, runs(parts)[0]


def test_two_worse_runs_of_an_agent_that_does_not_answer_for_long(parts, clock, load, agent, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(agent, "rollback", unreachable)
        first, second = two_worse(parts, clock, load, agent)
        passes(parts, clock, 50)
        clock.at += timedelta(hours=1)
        passes(parts, clock, 10)
    passes(parts, clock, 30)
    assert [parts.service.run(each.id).state for each in (first, second)] == ["rolled_back"] * 2


def applied_by_a_person(parts):
    plan = parts.service.plan(HOST, Request(), None, 0.0, ANN)
    run = parts.service.apply(plan.id, ApplyOptions(watch_seconds=30, undo_if_worse=True), ANN)
    wait_for_runs(parts)
    return run


def test_a_worse_run_of_a_person_whose_rollback_is_refused_for_long(parts, clock, load, agent, monkeypatch):
    load.worse_by = 200.0
    with monkeypatch.context() as patch:
        patch.setattr(agent, "rollback", unreachable)
        run = applied_by_a_person(parts)
        passes(parts, clock, 50)
        clock.at += timedelta(hours=1)
        passes(parts, clock, 10)
    passes(parts, clock, 30)
    assert parts.service.run(run.id).state == "rolled_back"


@pytest.mark.parametrize("seconds", [0, 5])
def test_the_run_of_a_replaced_policy_does_not_set_the_new_one_back(parts, clock, load, seconds):
    load.worse_by = 200.0
    enforced(parts)
    passes(parts, clock, seconds)
    new = replace(UNDOING, request=Request(housekeeping="0-7"))
    enforced(parts, new)
    load.worse_by = 0.0
    passes(parts, clock, 60)
    assert parts.service.policy(HOST) == new


# -- a verdict whose rollback is not possible yet --


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


# -- steps of the clock --


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
