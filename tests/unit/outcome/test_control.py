"""The control of a probe: it takes out the noise that it shares, and nothing of the effect."""

import random
from itertools import combinations
from statistics import fmean

import pytest
from support.examples import examples
from support.made_up.series import KINDS, most_wrong, upper_bound

from pinner.model.outcome.outcome import MEASURES, Measure, Window
from pinner.outcome.verdict import judge, schedule, shift, shift_beside, two_sided

DELAY = Measure("run_delay", "ms/s", 0.5)
EFFECT = -40.0
PROBES, REPLAYS = examples(300), examples(50)


def orders(windows):
    """All orders of so many windows of each placement."""
    for planned in combinations(range(2 * windows), windows):
        yield [index in planned for index in range(2 * windows)]


def values_of(load, planned, effect):
    return [value + effect * is_planned for value, is_planned in zip(load, planned, strict=True)]


def continuous(source, count):
    control = [source.gauss(50, 20) for _ in range(count)]
    return [100 + each / 2 + source.gauss(0, 2) for each in control], control


def whole_numbers(source, count):
    """As drops: most values are equal."""
    return [float(source.choice((0, 0, 0, 7))) for _ in range(count)], [
        float(source.choice((0, 0, 5))) for _ in range(count)
    ]


@pytest.mark.parametrize("windows", [4, 5])
def test_the_control_takes_nothing_of_the_effect_over_all_orders(windows):
    """A regression of the values themselves takes 1 / (windows - 1) of it: -34.3 and -35.6 are left."""
    source = random.Random(f"effect {windows}")
    estimates = [
        shift_beside(values_of(load, planned, EFFECT), control, planned).estimate
        for load, control in (continuous(source, 2 * windows) for _ in range(3))
        for planned in orders(windows)
    ]
    assert fmean(estimates) == pytest.approx(EFFECT, abs=0.5)
    assert min(estimates) > -48
    assert max(estimates) < -32


@pytest.mark.parametrize("effect", [0.0, EFFECT, 1e4])
@pytest.mark.parametrize("noise", [continuous, whole_numbers])
def test_the_test_of_the_true_shift_is_exact(noise, effect):
    """No simulation: of all orders that could have been drawn, at most a share alpha refuses the true shift."""
    source = random.Random(f"exact {noise.__name__}")
    for _ in range(3):
        load, control = noise(source, 8)
        ps = [shift_beside(values_of(load, each, effect), control, each).p(effect) for each in orders(4)]
        for alpha in (1 / 70, 0.05, 0.1, 0.3):
            assert sum(above <= alpha for above, _ in ps) <= alpha * 70 + 1e-9
            assert sum(below <= alpha for _, below in ps) <= alpha * 70 + 1e-9


def test_the_interval_has_the_shifts_that_the_test_does_not_refuse():
    source = random.Random(5)
    load, control = continuous(source, 12)
    planned = [arm == "planned" for arm in schedule(6, 5)]
    values = values_of(load, planned, EFFECT)
    low, high = shift_beside(values, control, planned).interval(0.05)
    for tried, refused in ((low - 0.01, True), (low + 0.01, False), (high - 0.01, False), (high + 0.01, True)):
        moved = values_of(values, planned, -tried)
        assert (two_sided(shift_beside(moved, control, planned).p()) <= 0.05) == refused


@pytest.mark.parametrize("control", [(3.0,) * 8, (0.1,) * 8, (0.0,) * 8])
def test_a_control_that_is_constant_changes_nothing(control):
    values = (5.0, 1.0, 4.0, 2.0, 3.0, 9.0, 6.0, 7.0)
    planned = [arm == "planned" for arm in schedule(4, 3)]
    assert shift_beside(values, control, planned) == shift(values, planned)


def test_a_control_that_does_not_follow_the_load_gives_the_same_answer_as_none():
    """The control is as high in the pairs of both placements."""
    planned = [True, True, False, False]
    values = (1.0, 2.0, 11.0, 12.0)
    assert shift_beside(values, (1.0, -1.0, -1.0, 1.0), planned).estimate == pytest.approx(-10.0)


def test_a_control_that_moves_as_the_placements_do_leaves_no_answer():
    planned = [arm == "planned" for arm in schedule(5, 2)]
    found = shift_beside(values_of([5.0] * 10, planned, EFFECT), [float(each) for each in planned], planned)
    assert (found.p(), found.estimate) == ((1.0, 1.0), 0.0)
    assert found.interval(0.05) == (float("-inf"), float("inf"))


def test_an_order_that_the_control_does_not_let_apart_counts_against_a_verdict():
    """The orders differ in two windows, and only there the control differs."""
    control = (9.0, 1.0, 5.0, 5.0, 5.0, 5.0)
    planned = [True, False, True, True, False, False]
    found = shift_beside((1.0, 8.0, 2.0, 3.0, 9.0, 7.0), control, planned)
    assert found.equal == 1
    assert found.p()[1] >= 2 / 20


def test_equal_values_are_no_effect_beside_any_control():
    source = random.Random(8)
    planned = [arm == "planned" for arm in schedule(5, 4)]
    for value in (0.0, 0.1, 1e7 / 3):
        found = shift_beside([value] * 10, [source.gauss(50, 20) for _ in range(10)], planned)
        assert (found.estimate, found.p()) == (0.0, (1.0, 1.0))


def probe(source, seed, kind, effect=0.0):
    """The verdict of a probe with all measures: the guests and the control follow the same load of a kind."""
    arms = schedule(6, seed)
    names = [measure.name for measure in MEASURES]
    load = {name: kind(12, source) for name in names}
    own = {name: kind(12, source) for name in names}
    windows = []
    for index, arm in enumerate(arms):
        added = effect if arm == "planned" else 0.0
        values = {name: 2 * load[name][index] + own[name][index] / 4 for name in names}
        values["run_delay"] += added
        control = {name: load[name][index] + source.gauss(0, 0.1) for name in names[:2]}
        windows.append(Window(arm, values, control))
    return judge(windows, MEASURES)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_noise_beside_a_control_gives_better_or_worse_in_at_most_one_of_twenty_probes(kind):
    source = random.Random(f"control {kind.__name__}")
    wrong = sum(probe(source, seed, kind).judgement in ("better", "worse") for seed in range(PROBES))
    most = f"at most {100 * upper_bound(wrong, PROBES):.1f} % (95 % interval)"
    print(f"{kind.__name__}: {wrong} of {PROBES} are false; {most}")
    assert wrong <= most_wrong(PROBES)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_effect_beside_a_control_is_found_in_nineteen_of_twenty_probes(kind):
    """The run delay falls from 3.1 s to 2.1 s, with noise of 0.3 s, beside a load that moves by more than that."""
    source = random.Random(f"power {kind.__name__}")
    found, effects = 0, []
    for seed in range(REPLAYS):
        arms, load = schedule(8, seed), kind(16, source)
        windows = [
            Window(arm, {"run_delay": 3.1 - (arm == "planned") + each + source.gauss(0, 0.3)}, {"run_delay": each})
            for arm, each in zip(arms, load, strict=True)
        ]
        outcome = judge(windows, [DELAY])
        found += outcome.judgement == "better"
        effects.append(outcome.measures[0].effect)
    print(f"{kind.__name__}: {found} of {REPLAYS} are better; the mean effect is {fmean(effects):.2f} s")
    assert found >= 0.96 * REPLAYS
    assert fmean(effects) == pytest.approx(-1.0, abs=0.1)
