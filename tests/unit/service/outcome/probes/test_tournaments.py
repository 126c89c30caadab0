"""Tournaments: probes of several plans, which rank them and may keep the winner."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.fakes.probed_host import ANN, THREAD, WEB, probed, records
from support.values import NOON, busy_host, busy_plan, cpus, make_change

from pinner.model.errors import Blocked, HostBusy, HostUnreachable, Invalid, NotFound
from pinner.model.machine.process import CpuQuota
from pinner.model.outcome.outcome import BLOCK, MAX_PLANS, ProbeOptions
from pinner.model.page import PageRequest
from pinner.outcome.verdict import schedule
from pinner.service.outcome import probe_execution
from pinner.service.outcome.probe_execution import Switches
from pinner.service.runs.runs import RunManager

ARMS = ("current", "shared-pool", "numa-local", "isolated")
CPUS = {"current": "0-3", "shared-pool": "1", "numa-local": "2", "isolated": "3"}
DOCUMENTED = {"1": -60.0, "2": -40.0, "3": -20.0}
WINDOWS = 10
"""Fewer cannot tell apart any of the nine measures of four placements."""


def played(parts, plans, windows=WINDOWS, *, keep=False):
    return probed(parts, plans[0], windows, rivals=plans[1:], keep=keep)


def test_the_documented_order_is_found_and_the_placement_put_back(parts, host, plans):
    host.effects = DOCUMENTED
    found = played(parts, plans)
    assert (found.state, found.why, found.outcome, found.arms) == ("ended", "", None, ARMS)
    assert [(place.rank, place.arm) for place in found.ranking.places] == [
        (1, "shared-pool"), (2, "numa-local"), (3, "isolated"), (4, "current"),
    ]  # fmt: skip
    assert (found.winner, found.kept, host.mask) == ("shared-pool", "", "0-3")
    assert [window.arm for window in found.windows] == list(found.order) == list(schedule(WINDOWS, 7, ARMS, BLOCK))
    assert (found.ranking.windows, found.ranking.void) == (4 * WINDOWS, ())
    assert found.ended_at - found.started_at == timedelta(seconds=found.total_seconds)
    begin, end = records(parts, "probe.")
    assert begin.result == "40 windows of 30 s, plans plan-3, plan-20, plan-30"
    assert end.result == "ended: shared-pool wins"


def test_each_window_has_the_placement_of_its_arm(parts, host, plans):
    seen = []
    host.at_wait[0] = lambda: seen.append(host.mask)
    found = played(parts, plans, 2)
    assert seen[1::2] == [CPUS[arm] for arm in found.order]


def test_the_placement_from_before_lies_between_those_of_two_plans(parts, plans):
    """Each plan was made for it."""
    played(parts, plans, 2)
    runs = parts.service.runs("h1", PageRequest(direction="asc")).items
    assert [run.kind for run in runs] == ["apply", "rollback"] * (len(runs) // 2)
    assert {run.plan for run in runs if run.kind == "apply"} == {plan.id for plan in plans}


def test_a_plan_that_changes_no_guest_is_measured_on_all_guests(parts, host, store, plan):
    """As in a probe of it alone: to the guests that other plans change it may make no difference."""
    host.agent.host.taken = replace(host.agent.host.taken, processes=busy_host().processes[1:2])
    other = replace(plan, id="plan-4", changes=(make_change(110, after="2", threads=2),))
    store.plans.add(other, NOON)
    assert played(parts, [plan, other], 2).guests == ()


def test_plans_of_one_strategy_have_the_names_of_their_ids(parts, host, store, plan):
    other = host.plan(store, name="plan-4", cpu="2")
    third = host.plan(store, name="plan-5", cpu="3", strategy="numa-local")
    assert played(parts, [plan, other, third], 2).arms == ("current", "plan-3", "plan-4", "numa-local")


# -- the winner --


def test_the_winner_is_kept_by_a_run_that_counts_as_a_placement(parts, host, store, plans):
    host.effects = {"2": -60.0}
    found = played(parts, plans, keep=True)
    assert (found.state, found.why, found.winner, found.left, host.mask) == ("ended", "", "numa-local", "", "2")
    kept = parts.service.run(found.kept)
    assert (kept.plan, kept.actor, kept.origin) == ("plan-20", "ann", f"the winner of {found.id}")
    _, placement = store.runs.last_applied("h1")
    assert placement.id == found.kept
    parts.probes.make_pass()
    assert host.mask == "2"
    list(parts.service.follow(parts.service.rollback(found.kept, ANN).id))
    assert host.mask == "0-3"


def test_a_better_plan_of_a_probe_is_kept(parts, host, plan):
    host.effect = -60.0
    found = probed(parts, plan, keep=True)
    assert (found.outcome.judgement, parts.service.run(found.kept).plan, host.mask) == ("better", plan.id, "1")


@pytest.mark.parametrize("effects", [{}, {"1": 40.0, "2": 40.0, "3": 40.0}], ids=["no difference", "all are worse"])
def test_without_a_winner_the_placement_is_as_before(parts, host, plans, effects):
    host.effects = effects
    found = played(parts, plans, keep=True)
    assert (found.state, found.winner, found.kept, host.mask) == ("ended", "", "", "0-3")
    assert records(parts, "probe.")[-1].result == "ended: no placement is better than the current one"


def test_a_winner_that_cannot_be_placed_any_more_is_not_kept_and_the_output_says_why(parts, host, plans):
    host.effects = DOCUMENTED
    last = 2 * 4 * WINDOWS + 1
    host.at_wait[last] = lambda: setattr(host.agent.host, "failing", {WEB: "the kernel refused"})
    found = played(parts, plans, keep=True)
    assert (found.state, found.winner, found.kept, found.left, host.mask) == ("ended", "shared-pool", "", "", "0-3")
    assert "the winner is not kept" in found.why
    assert "the kernel refused" in found.why


def plan_is_stale(host, monkeypatch):
    host.agent.host.move(THREAD, "0")


def another_run_works(host, monkeypatch):
    def apply(*_):
        raise HostBusy("h1", "run-other")

    monkeypatch.setattr(host.agent, "apply", apply)


def agent_is_down(host, monkeypatch):
    def apply(*_):
        raise HostUnreachable("h1", "it does not answer")

    monkeypatch.setattr(host.agent, "apply", apply)


@pytest.mark.parametrize(
    ("happens", "why"),
    [(plan_is_stale, "stale"), (another_run_works, "run-other"), (agent_is_down, "it does not answer")],
    ids=lambda each: each.__name__ if callable(each) else "",
)
def test_a_winner_that_cannot_start_costs_no_ranking(parts, host, plans, monkeypatch, happens, why):
    host.effects = DOCUMENTED
    host.at_wait[2 * 4 * WINDOWS + 1] = lambda: happens(host, monkeypatch)
    found = played(parts, plans, keep=True)
    assert (found.state, found.winner, found.kept, found.left) == ("ended", "shared-pool", "", "")
    assert found.why.startswith("the winner is not kept: ")
    assert why in found.why


def test_a_winner_that_can_neither_be_kept_nor_undone_now_costs_no_ranking(parts, host, plans, monkeypatch):
    host.effects = DOCUMENTED

    def unreachable(*_):
        raise HostUnreachable("h1", "it does not answer")

    def apply(*_):
        monkeypatch.setattr(probe_execution, "_is_in_place", lambda *_: True)
        monkeypatch.setattr(RunManager, "rollback", unreachable)
        unreachable()

    host.at_wait[2 * 4 * WINDOWS + 1] = lambda: monkeypatch.setattr(Switches, "apply", apply)
    left = played(parts, plans, keep=True)
    assert (left.state, left.winner) == ("running", "shared-pool")
    monkeypatch.undo()
    parts.probes.make_pass()
    found = parts.service.probe_by_id(left.id)
    assert (found.state, found.winner, found.kept, host.mask) == ("ended", "shared-pool", "", "0-3")
    assert "the winner is not kept" in found.why


class Gate:
    """From its second write on, the host refuses those to web1 and to the process 110."""

    def __init__(self, host):
        self._host = host
        self._writes = 0

    def acquire(self, timeout):
        self._writes += 1
        if self._writes == 2:
            self._host.failing = dict.fromkeys((WEB, "110"), "the kernel refused")
        return True


def test_a_winner_that_is_placed_in_part_and_cannot_be_undone_is_named(parts, host, store, plan):
    host.agent.host.taken = replace(host.agent.host.taken, processes=busy_host().processes[1:2])
    best = host.plan(store, also=(make_change(110, after="2", threads=2),), name="plan-4", cpu="2")
    host.effects = {"2": -60.0}
    last = 2 * 3 * WINDOWS + 1
    host.at_wait[last] = lambda: setattr(host.agent.host, "gate", Gate(host.agent.host))
    found = played(parts, [plan, best], keep=True)
    assert (found.state, found.winner, found.kept) == ("ended", "plan-4", "")
    assert "the winner is not kept" in found.why
    assert parts.service.run(found.left).origin == f"the winner of {found.id}"


def cancel(parts):
    (running,) = parts.service._store.probes.running("h1")
    parts.service.cancel_probe(running.id, ANN)


def end_the_server(parts):
    (stop,) = parts.probes._stops.values()
    stop.order("interrupted", "the server ended")


@pytest.mark.parametrize("is_placed", [False, True], ids=["before the winner's run", "during it"])
@pytest.mark.parametrize(
    ("end", "state", "why"),
    [(cancel, "cancelled", "cancelled by ann"), (end_the_server, "interrupted", "the server ended")],
)
def test_an_order_to_end_after_the_last_window_counts(parts, host, plans, monkeypatch, end, state, why, is_placed):
    host.effects = DOCUMENTED
    owner, name = (Switches, "apply") if is_placed else (probe_execution, "with_result")
    real = getattr(owner, name)

    def ended(*given):
        if not is_placed or given[2].startswith("the winner"):
            end(parts)
        return real(*given)

    monkeypatch.setattr(owner, name, ended)
    found = played(parts, plans, keep=True)
    assert (found.state, found.why, found.kept, found.left, host.mask) == (state, why, "", "", "0-3")
    assert found.ranking is None


def test_a_pass_leaves_a_winner_that_was_kept_since_it_read_the_probes(parts, host, store, plans, monkeypatch):
    host.effects = DOCUMENTED
    real = type(store.probes).running

    def running(probes, name):
        found = real(probes, name)
        for probe in found:
            parts.probes.wait(probe.id)
        return found

    begun = parts.service.probe("plan-3", ProbeOptions(WINDOWS, 30, ("plan-20", "plan-30"), keep=True), ANN)
    with monkeypatch.context() as patch:
        patch.setattr(type(store.probes), "running", running)
        parts.probes.make_pass()
    found = parts.service.probe_by_id(begun.id)
    assert (found.state, bool(found.kept), host.mask) == ("ended", True, "1")


# -- bad input --


def test_equal_plans_are_refused(parts, host, store, plan):
    other = host.plan(store, name="plan-4", strategy="numa-local")
    for rival in (plan, other):
        with pytest.raises(Invalid, match=f"{rival.id}.*another placement than that of plan plan-3"):
            parts.service.probe(plan.id, ProbeOptions(4, 30, (rival.id,)), ANN)
    assert records(parts, "probe.") == []


def test_more_plans_than_the_most_are_refused(parts, host, store, plan):
    rivals = tuple(f"plan-{number}" for number in range(10, 10 + MAX_PLANS))
    with pytest.raises(Invalid, match=f"at most {MAX_PLANS - 1}"):
        parts.service.probe(plan.id, ProbeOptions(4, 30, rivals), ANN)


def test_a_rival_that_cannot_be_played_is_refused(parts, store, plan, plans):
    other = replace(plans[1], id="plan-4")
    store.plans.add(replace(other, changes=()), NOON)
    store.plans.add(replace(other, id="plan-5", blocked="a reboot"), NOON)
    store.plans.add(replace(other, id="plan-6", host="h2"), NOON)
    for rival, error in (("plan-4", Blocked), ("plan-5", Blocked), ("plan-6", Invalid), ("plan-99", NotFound)):
        with pytest.raises(error, match=rival):
            parts.service.probe(plan.id, ProbeOptions(4, 30, (rival,)), ANN)
    with pytest.raises(Invalid, match="a multiple of 2"):
        parts.service.probe(plan.id, ProbeOptions(5, 30, ("plan-20",)), ANN)
    assert records(parts, "probe.") == []


def test_a_stale_plan_ends_the_tournament(parts, host, store, plan):
    stale = busy_plan("plan-4", plan.basis.snapshot, (replace(plan.changes[0], before=(), after=cpus("2")),))
    moved = replace(plan.changes[0].before[0], cpus=cpus("0-1"))
    store.plans.add(replace(stale, changes=(replace(stale.changes[0], before=(moved,)),)), NOON)
    found = played(parts, [plan, store.plans.get("plan-4")])
    assert (found.state, found.ranking, found.left, host.mask) == ("failed", None, "", "0-3")
    assert "plan plan-4 is stale" in found.why


def test_a_plan_that_is_placed_in_part_ends_the_tournament(parts, host, store, plan):
    """All of its changes are undone."""
    host.agent.host.taken = replace(host.agent.host.taken, processes=busy_host().processes[1:2])
    both = host.plan(store, also=(make_change(110, after="2", threads=2),), name="plan-4", cpu="2")
    host.agent.host.failing = {"110": "the kernel refused"}
    found = played(parts, [plan, both])
    assert (found.state, found.left, host.mask) == ("failed", "", "0-3")
    assert "the kernel refused" in found.why


def test_a_plan_that_is_worse_is_played(parts, host, store, plan):
    other = host.plan(store, name="plan-4", cpu="2")
    store.plans.add(replace(other, id="plan-5", worse="more guests share a CPU"), NOON)
    assert played(parts, [plan, store.plans.get("plan-5")], 2).state == "ended"


def test_a_quota_that_changes_within_a_window_costs_this_window(parts, host, plans):
    host.effects = DOCUMENTED

    def change():
        taken = host.agent.host.taken
        web, *others = taken.guests
        limited = replace(web, quotas={"vcpu_quota": CpuQuota(50_000)})
        host.agent.host.taken = replace(taken, guests=(limited, *others))

    host.at_wait[4] = change
    found = played(parts, plans, 12)
    assert [index for index, window in enumerate(found.windows) if window.void] == [1]
    assert (found.ranking.void, found.winner) == (("guest web1 has another vcpu_quota",), "shared-pool")


# -- ended before its time --


class Killed(BaseException):
    """The process ends here."""


BLOCKED = 2 * BLOCK * len(ARMS)
"""The waits of one block: the wash-out and the window of each placement."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("wait", range(1, BLOCKED + 2))
def test_after_a_kill_in_each_kind_of_window_the_next_server_puts_the_placement_back(parts, host, store, plans, wait):
    def die():
        host.at_wait.clear()
        raise Killed

    host.at_wait[wait] = die
    left = played(parts, plans, keep=True)
    order = schedule(WINDOWS, 7, ARMS, BLOCK)
    assert (left.state, host.mask) == ("running", CPUS[order[(wait - 1) // 2]])
    with host.compose(store) as again:
        again.probes.make_pass()
        found = again.service.probe_by_id(left.id)
        assert (found.state, found.why) == ("interrupted", "the server ended before the probe")
        assert (found.ranking, found.kept, found.left, host.mask) == (None, "", "", "0-3")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_after_a_kill_before_the_end_is_stored_the_winner_is_not_kept(parts, host, store, plans, monkeypatch):
    host.effects = DOCUMENTED

    def die(*_):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(type(store.probes), "end", die)
        left = played(parts, plans, keep=True)
    assert (left.state, host.mask) == ("running", "1")
    with host.compose(store) as again:
        again.probes.make_pass()
        found = again.service.probe_by_id(left.id)
        assert (found.state, found.kept, found.left, host.mask) == ("interrupted", "", "", "0-3")


@pytest.mark.parametrize("wait", range(1, 2 * BLOCKED, 3))
def test_a_cancelled_tournament_puts_the_placement_back(parts, host, plans, wait):
    def cancel():
        (running,) = parts.service._store.probes.running("h1")
        parts.service.cancel_probe(running.id, ANN)

    host.at_wait[wait] = cancel
    found = played(parts, plans, keep=True)
    assert (found.state, found.why, found.ranking, host.mask) == ("cancelled", "cancelled by ann", None, "0-3")
