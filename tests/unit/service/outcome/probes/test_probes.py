"""Probes of plans: windows of random order, the verdict, and the placement that is found afterwards."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.fakes.probed_host import ANN, BEFORE_A_SWITCH, DB, ORDER, WEB, guest, probed, records
from support.values import NOON, busy_plan

from pinner.model.errors import Blocked, HostBusy, Invalid, NotFound, PolicyConflict, ProbeBusy
from pinner.model.outcome.outcome import ProbeOptions
from pinner.model.page import PageRequest
from pinner.model.plan.request import Request
from pinner.model.policy import Policy
from pinner.model.run.journal import ApplyOptions


@pytest.mark.parametrize(("effect", "judgement"), [(-40.0, "better"), (40.0, "worse"), (0.0, "no matter")])
def test_the_verdict_says_what_the_plan_does(parts, host, plan, effect, judgement):
    host.effect = effect
    found = probed(parts, plan)
    assert (found.state, found.why, found.outcome.judgement) == ("ended", "", judgement)
    assert [window.arm for window in found.windows] == list(found.order) == list(ORDER)
    assert found.outcome.windows == 12
    delay = found.outcome.measures[0]
    assert delay.measure.name == "run_delay"
    assert abs(delay.effect - effect) < 8.0
    assert all(window.control["run_delay"] < window.values["run_delay"] for window in found.windows)
    assert not host.is_placed


def test_a_plan_with_which_more_packets_arrive_is_better(parts, host, plan):
    value = host._value

    def received(subject, series, at):
        more = subject == WEB and host.is_placed_at(at)
        return value(subject, series, at) + more * {"packets_in": 500_000.0, "bits_in": 1e9}.get(series, 0.0)

    host.agent.histories._value = received
    found = probed(parts, plan).outcome
    assert (found.judgement, [each.measure.name for each in found.measures if each.judgement == "better"]) == (
        "better",
        ["packets_in", "bits_in"],
    )


def test_a_window_begins_after_the_wash_out_and_has_no_step_of_the_switch(parts, host, plan):
    host.effect = 40.0
    found = probed(parts, plan)
    planned = {window.values["run_delay"] for window in found.windows if window.arm == "planned"}
    assert min(planned) >= 140.0
    assert found.ended_at - found.started_at == timedelta(seconds=found.total_seconds)


def test_it_switches_by_ordinary_runs_that_name_it(parts, plan):
    found = probed(parts, plan)
    runs = parts.service.runs("h1", PageRequest(direction="asc")).items
    assert {(run.actor, run.origin) for run in runs} == {("ann", f"the probe {found.id}")}
    assert [run.kind for run in runs] == ["apply", "rollback"] * (len(runs) // 2)
    begin, end = records(parts, "probe.")
    assert (begin.actor, begin.subject, begin.result) == ("ann", found.id, "12 windows of 30 s, plan plan-3")
    assert (end.action, end.result) == ("probe.end", "ended: no matter")


def test_too_few_windows_are_inconclusive_and_say_how_many_are_missing(parts, host, plan):
    host.effect = -40.0
    outcome = probed(parts, plan, windows=3).outcome
    assert (outcome.judgement, outcome.missing) == ("inconclusive", 3)


def test_a_measure_that_nobody_knows_is_not_judged(parts, host, plan):
    host.unknown = frozenset({"drops", "softnet_drops", "packets_in", "packets_out", "bits_in", "bits_out"})
    outcome = probed(parts, plan).outcome
    assert [each.measure.name for each in outcome.measures] == ["run_delay", "pressure"]
    assert outcome.void == ()


def other_run(parts, host, store):
    def change():
        host.at_wait.clear()
        other = busy_plan("plan-9", "s", (host.other_change,))
        store.plans.add(replace(other, basis=store.plans.get("plan-3").basis), NOON)
        run = parts.service.apply("plan-9", ApplyOptions(), ANN)
        list(parts.service.follow(run.id))

    return change


def test_a_window_that_another_run_crosses_is_void(parts, host, store, plan):
    change = plan.changes[0]
    target = replace(change.target, owner=DB, name="db1")
    host.other_change = replace(change, target=target, before=(replace(change.before[0], tid=201),))
    host.at_wait[3] = other_run(parts, host, store)  # after the wash-out of the second window
    found = probed(parts, plan)
    assert [bool(window.void) for window in found.windows] == [False, True] + [False] * 10
    (why,) = found.outcome.void
    assert why.startswith("run run-") and why.endswith(" changed the host")


def test_a_window_in_which_the_clock_jumps_is_void(parts, host, plan):
    def jump():
        host.at += timedelta(hours=1)

    host.at_wait[4] = jump
    found = probed(parts, plan)
    assert found.outcome.void == ("the clock jumped by +3600 s",)
    assert found.state == "ended"


OTHERS = {
    "guest db1 went": (),
    "guest new1 came": (guest("db1", DB), guest("new1", "new")),
    "guest db1 was restarted": (replace(guest("db1", DB), pid=999),),
    "guest db1 migrates": (replace(guest("db1", DB), state="migrating"),),
}
"""The guests beside web1."""


def show(host, others):
    """The host has web1, and these other guests, from now on."""
    now = host.agent.host.taken
    host.agent.host.taken = replace(now, guests=(now.guests[0], *others))


@pytest.mark.parametrize("why", OTHERS)
def test_a_window_in_which_the_guests_change_is_void(parts, host, plan, why):
    host.at_wait[4] = lambda: show(host, OTHERS[why])
    found = probed(parts, plan)
    assert why in found.outcome.void
    assert found.windows[1].void == why
    assert found.windows[0].void == ""


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("guest-reset", "guest db1 was reset"),
        ("guest-paused", "was paused"),
        ("guest-started", "guest db1 was started"),
        ("guest-stopped", "guest db1 was stopped"),
    ],
)
@pytest.mark.parametrize(("wait", "void"), [(3, [1]), (4, [1, 2])])
def test_a_window_in_which_a_guest_is_reset_or_was_paused_is_void(parts, host, plan, kind, why, wait, void):
    """Also in its wash-out, and at the very moment between two windows. QEMU's process stays the same."""
    host.at_wait[wait] = lambda: host.agent.event_queue.publish(kind, DB)
    found = probed(parts, plan)
    assert [index for index, window in enumerate(found.windows) if why in window.void] == void
    assert found.outcome.windows == 12 - len(void)


def test_a_guest_that_is_restarted_during_a_switch_makes_the_next_window_void(parts, host, plan):
    """It boots in that window. The first snapshot of the window is taken after the switch, and shows the new guest."""

    def restart():
        host.agent.host.refusal = None
        show(host, OTHERS["guest db1 was restarted"])
        for kind in ("guest-stopped", "guest-started"):
            host.agent.event_queue.publish(kind, DB)

    host.at_wait = {
        BEFORE_A_SWITCH: lambda: setattr(host.agent.host, "refusal", HostBusy("h1", "run-9")),
        BEFORE_A_SWITCH + 2: restart,
    }
    found = probed(parts, plan)
    void = [index for index, window in enumerate(found.windows) if window.void]
    assert (void, found.outcome.void) == ([BEFORE_A_SWITCH // 2], ("guest db1 was stopped",))


def test_the_events_before_a_probe_do_not_matter(parts, host, plan):
    host.agent.event_queue.publish("guest-reset", DB)
    host.agent.event_queue.publish("lost", "")
    assert probed(parts, plan).outcome.void == ()


def test_events_that_were_lost_make_windows_void(parts, host, plan):
    host.at_wait[4] = lambda: host.agent.event_queue.publish("lost", "", "libvirt answers again")
    assert "events of the host were lost: libvirt answers again" in probed(parts, plan).outcome.void


def test_a_probe_keeps_the_processes_that_the_policy_watches(parts, host, plan):
    host.agent.event_queue.since(0, 0.0, ("logshipd",))
    probed(parts, plan)
    assert host.agent.event_queue.watched == {"logshipd"}


def test_a_window_in_which_the_governor_changes_is_void(parts, host, plan):
    def change():
        topology = host.agent.host.taken.topology
        cpus = tuple(replace(cpu, governor="powersave") for cpu in topology.cpus)
        host.agent.host.taken = replace(host.agent.host.taken, topology=replace(topology, cpus=cpus))

    host.at_wait[4] = change
    found = probed(parts, plan)
    assert [window.void[:12] for window in found.windows[:3]] == ["", "the governor", ""]


def test_a_window_in_which_the_load_of_the_control_shifts_is_void(parts, host, plan):
    """In the other windows, the load is different and steady."""
    value, shift = host._value, NOON + timedelta(seconds=75)  # the second window is 60 to 90 s after the begin

    def loaded(subject, series, at):
        if subject == DB and series == "use_vcpu":
            return 20.0 if at <= shift else 120.0
        return value(subject, series, at)

    host.agent.histories._value = loaded
    found = probed(parts, plan)
    assert [window.void[:8] for window in found.windows] == ["", "the load"] + [""] * 10


def test_a_window_with_unknown_steps_is_void(parts, host, plan):
    value = host._value
    gap = NOON + timedelta(seconds=80)  # in the second window
    host.agent.histories._value = lambda subject, series, at: (
        None if at == gap and series == "drops" else value(subject, series, at)
    )
    assert probed(parts, plan).outcome.void == ("not known in all steps: drops, loss",)


def test_a_probe_without_a_window_that_counts_is_inconclusive(parts, host, plan):
    def forget():
        host.agent.histories = None

    host.at_wait[1] = forget
    outcome = probed(parts, plan, windows=2).outcome
    assert (outcome.judgement, outcome.windows, len(outcome.void), outcome.missing) == ("inconclusive", 0, 4, 6)


def test_a_host_has_one_probe_at_a_time(parts, host, plan):
    refused = []

    def again():
        try:
            parts.service.probe(plan.id, ProbeOptions(2, 30), ANN)
        except ProbeBusy as error:
            refused.append(error)

    host.at_wait[1] = again
    found = probed(parts, plan, windows=2)
    assert [error.details["probe"] for error in refused] == [found.id]


def test_a_probe_is_refused_while_a_run_is_under_way(parts, host, plan):
    host.agent.host.gate = host.agent.host.gate.__class__(0)
    run = parts.service.apply(plan.id, ApplyOptions(), ANN)
    with pytest.raises(HostBusy) as busy:
        parts.service.probe(plan.id, ProbeOptions(2, 30), ANN)
    assert busy.value.details["run"] == run.id
    host.agent.host.gate.release(100)
    list(parts.service.follow(run.id))


def test_a_probe_is_refused_under_an_enforced_policy(parts, store, plan):
    parts.service.set_policy("h1", Policy(Request(guests=("web1",)), "enforce"), ANN)
    with pytest.raises(PolicyConflict):
        parts.service.probe(plan.id, ProbeOptions(2, 30), ANN)
    assert store.probes.running("h1") == ()


def test_a_probe_is_refused_where_nothing_is_measured(parts, host, plan):
    host.agent.histories = None
    with pytest.raises(NotFound) as refused:
        parts.service.probe(plan.id, ProbeOptions(2, 30), ANN)
    assert refused.value.details["kind"] == "measures"


def test_an_impossible_probe_is_refused(parts, store, plan):
    for windows, seconds in ((1, 30), (51, 30), (6, 14), (6, 601)):
        with pytest.raises(Invalid):
            parts.service.probe(plan.id, ProbeOptions(windows, seconds), ANN)
    store.plans.add(replace(plan, id="plan-4", changes=()), NOON)
    with pytest.raises(Blocked):
        parts.service.probe("plan-4", ProbeOptions(6, 30), ANN)
    store.plans.add(replace(plan, id="plan-5", blocked="a reboot"), NOON)
    with pytest.raises(Blocked):
        parts.service.probe("plan-5", ProbeOptions(6, 30), ANN)
    with pytest.raises(NotFound):
        parts.service.probe("plan-9", ProbeOptions(6, 30), ANN)
    assert records(parts, "probe.") == []


@pytest.mark.parametrize(("wait", "state"), [(BEFORE_A_SWITCH, "failed"), (2 * len(ORDER) + 1, "ended")])
def test_after_everything_off_a_probe_places_nothing_more(parts, host, plan, wait, state):
    """Also where the host had no change in force just then, so that no later rollback of the probe fails."""
    host.effect = -60.0

    def off():
        assert not host.is_placed
        list(parts.service.follow(parts.service.rollback_all("h1", ANN).id))

    host.at_wait[wait] = off
    found = probed(parts, plan, keep=True)
    assert (found.state, found.kept, found.left, host.is_placed) == (state, "", "", False)
    assert "is rolled_back: it has put everything off the host" in found.why
    latest = parts.service.runs("h1", PageRequest()).items[0]
    assert (latest.kind, latest.undoes) == ("rollback", "")
