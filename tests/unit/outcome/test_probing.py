"""The decisions of a probe: which windows count, and what they say."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.in_memory_service import sample_snapshot
from support.values import NOON, cpus, make_run

from pinner import codec
from pinner.model.guest import Tap, Vcpu
from pinner.model.outcome import Outcome, Sample, Window
from pinner.outcome.probing import crossed, disturbed, jumped, outcome, window

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


OTHER_TAP = Tap("vnet0", "52:54:00:00:00:01", 50, 49, 0, 0)
DISTURBED = {
    "guest web1 went": (),
    "guest web1 was restarted": (replace(GUEST, pid=999),),
    "guest web1 migrates": (replace(GUEST, state="migrating"),),
    "guest web1 was running and is paused": (replace(GUEST, state="paused"),),
    "guest db1 came": (GUEST, replace(GUEST, uuid="db", name="db1")),
    "guest web1 has other vCPUs": (replace(GUEST, vcpus=(Vcpu(0, None, cpus("0-3")),)),),
    "guest web1 has other taps": (replace(GUEST, taps=()),),
    "a counter of the tap vnet0 of guest web1 was reset": (replace(GUEST, taps=(OTHER_TAP,)),),
}


@pytest.mark.parametrize("why", DISTURBED)
def test_what_happened_to_a_guest_is_named(why):
    assert disturbed(host(GUEST), host(*DISTURBED[why])) == why
    assert disturbed(host(GUEST), host(GUEST)) == ""


def test_a_guest_that_leaves_disturbs_from_the_begin():
    assert disturbed(host(replace(GUEST, leaving=True)), host(GUEST)) == "guest web1 migrates"


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
