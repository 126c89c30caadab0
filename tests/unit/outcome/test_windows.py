"""The decisions of a probe: which windows count, and what they say."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.values import NOON, cpus, make_run, sample_snapshot

from pinner import codec
from pinner.model.event import HostEvent
from pinner.model.guest.guest import Tap, Vcpu
from pinner.model.machine.process import CpuQuota
from pinner.model.outcome.outcome import Outcome, Sample, Window
from pinner.outcome.verdict import outcome
from pinner.outcome.windows import crossed, disturbed, jumped, reported, shifted, window

HOST = sample_snapshot()
GUEST = replace(HOST.guests[0], name="web1", taps=(Tap("vnet0", "52:54:00:00:00:01", 50, 50, 0, 0),))


def second(number):
    return NOON + timedelta(seconds=number)


def sample(at, **values):
    return Sample(second(at), values, {"run_delay": 1.0})


def host(*guests):
    return replace(HOST, guests=guests)


def test_a_window_has_the_mean_of_its_whole_steps():
    found = [sample(at, run_delay=float(at), drops=0.0) for at in range(5, 40, 5)]
    # The step that ends at 10 began before the window, and the one that ends at 30 is over after it.
    assert window("planned", found, second(7), second(28), 5) == Window(
        "planned", {"run_delay": 20.0, "drops": 0.0}, {"run_delay": 1.0}
    )


def test_a_measure_with_an_unknown_step_is_not_known_in_the_window():
    found = [sample(5, run_delay=1.0, drops=0.0), sample(10, run_delay=1.0)]
    assert window("current", found, second(0), second(10), 5).values == {"run_delay": 1.0}
    assert window("current", found, second(0), second(15), 5).void == "no measure is known in all steps"
    assert window("current", found, second(1), second(4), 5).void == "no measure is known in all steps"


def test_a_window_has_the_bits_of_each_guest():
    found = [replace(sample(at, bits_in=3.0 + at), bits={"bits_in": {"a": 1.0, "b": 2.0 + at}}) for at in (5, 10)]
    assert window("current", found, second(0), second(10), 5).bits == {"bits_in": {"a": 1.0, "b": 9.5}}


def test_a_percentile_is_known_in_a_window_from_the_first_step_on_that_looks_back_no_further():
    found = [sample(at, ping=1.0, ping_p99=float(at)) for at in range(5, 125, 5)]
    assert window("current", found, second(0), second(120), 5).values == {"ping": 1.0, "ping_p99": 110.0}
    assert window("current", found, second(0), second(95), 5).values == {"ping": 1.0}


OTHER_TAP = Tap("vnet0", "52:54:00:00:00:01", 50, 49, 0, 0)
DISTURBED = {
    "guest web1 went": (),
    "guest web1 was restarted": (replace(GUEST, pid=999),),
    "guest web1 migrates": (replace(GUEST, state="migrating"),),
    "guest web1 was running and is paused": (replace(GUEST, state="paused"),),
    "guest db1 came": (GUEST, replace(GUEST, uuid="db", name="db1")),
    "guest web1 has other vCPUs": (replace(GUEST, vcpus=(Vcpu(0, None, cpus("0-3")),)),),
    "guest web1 has other taps": (replace(GUEST, taps=()),),
    "guest web1 has another global_quota": (replace(GUEST, quotas={"global_quota": CpuQuota(50_000)}),),
    "a counter of the tap vnet0 of guest web1 was reset": (replace(GUEST, taps=(OTHER_TAP,)),),
}


@pytest.mark.parametrize("why", DISTURBED)
def test_what_happened_to_a_guest_is_named(why):
    assert disturbed(host(GUEST), host(*DISTURBED[why])) == why
    assert disturbed(host(GUEST), host(GUEST)) == ""


def test_another_limit_of_the_same_kind_is_named():
    low, high = (replace(GUEST, quotas={"vcpu_quota": CpuQuota(quota)}) for quota in (5000, 50_000))
    assert disturbed(host(low), host(high)) == "guest web1 has another vcpu_quota"
    assert disturbed(host(low), host(low)) == ""


def test_a_guest_that_leaves_disturbs_from_the_begin():
    assert disturbed(host(replace(GUEST, leaving=True)), host(GUEST)) == "guest web1 migrates"


def with_cpus(**changed):
    """The host after a change of its CPUs 1 and 2."""
    cpus_now = tuple(replace(cpu, **changed) if cpu.id in (1, 2) else cpu for cpu in GOVERNED.topology.cpus)
    return replace(GOVERNED, topology=replace(GOVERNED.topology, cpus=cpus_now))


GOVERNED = replace(
    HOST,
    guests=(GUEST,),
    topology=replace(HOST.topology, cpus=tuple(replace(cpu, governor="powersave") for cpu in HOST.topology.cpus)),
)
WITHOUT_ONE = replace(
    GOVERNED,
    topology=replace(GOVERNED.topology, cpus=tuple(cpu for cpu in GOVERNED.topology.cpus if cpu.id != 2)),
)


@pytest.mark.parametrize(
    ("after", "why"),
    [
        (with_cpus(governor="performance"), "the governor of CPUs 1-2 was powersave and is performance"),
        (with_cpus(governor=None), "the governor of CPUs 1-2 was powersave and is None"),
        (with_cpus(online=False), "CPUs 1-2 went offline or came online"),
        (WITHOUT_ONE, "CPUs 2 were plugged in or out"),
        (GOVERNED, ""),
    ],
)
def test_a_change_of_the_cpus_is_named(after, why):
    assert disturbed(GOVERNED, after) == why
    assert bool(disturbed(after, GOVERNED)) == bool(why)


@pytest.mark.parametrize(
    ("kind", "at", "why"),
    [
        ("guest-reset", 10, "guest web1 was reset"),
        ("guest-reset", 30, "guest web1 was reset"),
        ("guest-paused", 20, "guest web1 was paused"),
        ("guest-started", 10, "guest web1 was started"),
        ("guest-stopped", 10, "guest web1 was stopped"),
        ("guest-reset", 9, ""),
        ("guest-paused", 31, ""),
        ("lost", 31, "events of the host were lost: so"),
        ("guest-changed", 20, ""),
        ("process-started", 20, ""),
    ],
)
def test_an_event_that_no_snapshot_shows_is_named(kind, at, why):
    events = (HostEvent(1, second(12), "policy-set", ""), HostEvent(2, second(at), kind, GUEST.uuid, "so"))
    assert reported(events, {GUEST.uuid: "web1"}, second(10), second(30)) == why


def test_a_reset_of_a_guest_that_nobody_knows_is_named_by_its_uuid():
    assert reported((HostEvent(1, second(0), "guest-reset", "u-1"),), {}, second(0), second(1)) == "guest u-1 was reset"


@pytest.mark.parametrize(
    ("uses", "is_shifted"),
    [
        ((), False),
        ((5.0,), False),
        ((10.0, 110.0), True),
        ((110.0, 10.0), True),
        ((10.0, 10.0, 60.0, 60.0), True),
        ((10.0, 10.0, 59.0, 59.0), False),  # less than half a CPU
        ((100.0, 100.0, 190.0, 190.0), False),  # less than twice as much
        ((100.0, 100.0, 200.0, 200.0), True),
        ((0.0, 500.0, 60.0), True),  # the step in the middle is in neither half
        ((0.0, 500.0, 0.0), False),
        ((50.0, 150.0, 50.0, 150.0), False),  # bursts in both halves
    ],
)
def test_a_large_shift_of_the_load_within_a_window_is_named(uses, is_shifted):
    assert bool(shifted(uses)) == is_shifted


def test_a_shift_is_named_in_numbers():
    why = "the load of the guests that the plan does not change went from 10 % to 110 % of a CPU"
    assert shifted((10.0, 110.0)) == why


@pytest.mark.parametrize(
    ("begin", "end", "state", "is_crossed"),
    [
        (0, 10, "applied", True),
        (0, None, "running", True),
        (30, 31, "applied", True),
        (0, 9, "applied", False),
        (31, None, "running", False),
        (15, 16, "failed", True),
    ],
)
def test_a_run_of_another_origin_crosses_the_windows_that_it_touches(begin, end, state, is_crossed):
    run = make_run(state=state, started_at=second(begin), ended_at=None if end is None else second(end))
    why = "run run-1 changed the host" if is_crossed else ""
    assert crossed([run], "the probe 1", second(10), second(30)) == why
    assert crossed([replace(run, origin="the probe 1")], "the probe 1", second(10), second(30)) == ""


def test_a_jump_of_the_clock_is_named():
    assert (jumped(30.5, 30.0), jumped(29.5, 30.0)) == ("", "")
    assert (jumped(3630.0, 30.0), jumped(-30.0, 30.0)) == (
        "the clock jumped by +3600 s",
        "the clock jumped by -60 s",
    )


def test_a_window_without_a_measure_of_the_others_does_not_count():
    windows = [Window(arm, {"run_delay": 1.0, "drops": 0.0}) for arm in ("current", "planned")]
    found = outcome([*windows, Window("planned", {"run_delay": 9.0}), Window("current", {}, {}, "guest web1 went")])
    assert [each.measure.name for each in found.measures] == ["run_delay", "drops"]
    assert (found.windows, found.void) == (2, ("not known in all steps: drops", "guest web1 went"))


def test_a_window_without_a_control_of_the_others_does_not_count():
    windows = [Window(arm, {"run_delay": 1.0}, {"run_delay": 1.0}) for arm in ("current", "planned")]
    assert outcome([*windows, Window("planned", {"run_delay": 1.0})]).void == ("not known in all steps: run_delay",)


def test_an_outcome_without_windows_is_inconclusive():
    found = outcome([Window("planned", {}, {}, "guest web1 went")])
    assert (found.judgement, found.windows, found.measures) == ("inconclusive", 0, ())


def test_an_interval_without_bounds_survives_json():
    found = outcome([Window(arm, {"run_delay": 1.0}) for arm in ("current", "planned")])
    assert (found.measures[0].low, found.measures[0].high) == (None, None)
    assert codec.load(Outcome, codec.dump(found)) == found


def test_pings_are_judged_only_where_all_windows_know_them():
    """A guest that begins to filter pings costs no other measure its windows."""
    windows = [Window(arm, {"run_delay": 1.0, "ping": 2.0, "ping_loss": 0.0}) for arm in ("current", "planned")]
    assert [each.measure.name for each in outcome(windows).measures] == ["run_delay", "ping", "ping_loss"]
    found = outcome([*windows, Window("planned", {"run_delay": 1.0})])
    assert [each.measure.name for each in found.measures] == ["run_delay"]
    assert (found.windows, found.void) == (3, ())


def test_a_control_that_filters_pings_costs_no_window():
    windows = [
        Window(arm, {"ping": 1.0}, control)
        for arm, control in (("current", {"ping": 1.0}), ("planned", {}))
        for _ in "12"
    ]
    assert (outcome(windows).windows, outcome(windows).void) == (4, ())
