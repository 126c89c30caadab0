"""The ranking of a tournament, on series with and without an effect."""

import random
from itertools import combinations
from statistics import fmean, pstdev

import pytest
from support.examples import examples
from support.made_up.series import KINDS, most_wrong, upper_bound

from pinner.model.outcome.outcome import BLOCK, CORE, MEASURES, Window
from pinner.outcome.ranking import ranking
from pinner.outcome.verdict import ALPHA, compare, least_p, schedule, shift, windows_needed

ARMS = ("current", "shared-pool", "numa-local", "isolated")
DELAY, DROPS, _, PRESSURE = CORE
POWER = examples(50)
MANY = pytest.param(2_500, marks=pytest.mark.slow("10,000 replays of tournaments"))


def tournament(seed, series, effects=None, measures=(DELAY,), arms=ARMS):
    """The ranking of ``arms`` from series by measure, with the effects by (arm, measure) added."""
    order = schedule(len(series[measures[0].name]) // len(arms), seed, arms, BLOCK)
    windows = [
        Window(arm, {name: value[n] + (effects or {}).get((arm, name), 0.0) for name, value in series.items()})
        for n, arm in enumerate(order)
    ]
    return ranking(windows, arms)


def flat(seed, windows=12, measures=(DELAY,), arms=ARMS):
    source = random.Random(seed)
    return {each.name: [100 + source.gauss(0, 2) for _ in range(windows * len(arms))] for each in measures}


def test_each_block_has_each_placement_equally_often():
    order = schedule(6, 3, ARMS, BLOCK)
    length = BLOCK * len(ARMS)
    blocks = [order[begin : begin + length] for begin in range(0, len(order), length)]
    assert [sorted(block) for block in blocks] == [sorted(ARMS * BLOCK)] * 3
    assert len(set(blocks)) > 1


def test_only_orders_within_the_blocks_are_compared():
    values, planned, blocks = (
        (5.0, 1.0, 4.0, 20.0, 23.0, 29.0),
        (True, False, False, True, False, True),
        (0,) * 3 + (1,) * 3,
    )
    found = shift(values, planned, blocks)
    assert len(found.shifts) == 3 * 3 - 1
    drawn, differences = (5.0 + 20.0 + 29.0) / 3 - (1.0 + 4.0 + 23.0) / 3, []
    for one in range(3):
        for two in combinations(range(3, 6), 2):
            inside = sum(values[index] for index in (one, *two)) / 3
            differences.append(inside - (sum(values) / 3 - inside))
    assert found.p()[0] == pytest.approx(sum(each >= drawn - 1e-9 for each in differences) / 9)


@pytest.mark.parametrize(("arms", "needed"), [(3, 10), (4, 10), (5, 10), (6, 12)])
def test_more_placements_need_more_windows(arms, needed):
    tests = len(MEASURES) * arms * (arms - 1) // 2
    assert windows_needed(tests, BLOCK) == needed
    assert least_p(needed - BLOCK, BLOCK) > ALPHA / tests


def test_the_documented_order_is_found_with_its_p_values():
    """shared-pool is best, numa-local second, and isolated third but better than nothing."""
    effects = {
        ("shared-pool", "run_delay"): -60.0,
        ("numa-local", "run_delay"): -40.0,
        ("isolated", "run_delay"): -20.0,
    }
    found = tournament(5, flat(5), effects)
    assert [(each.rank, each.arm) for each in found.places] == [
        (1, "shared-pool"), (2, "numa-local"), (3, "isolated"), (4, "current"),
    ]  # fmt: skip
    assert found.places[0].better_than == ("current", "numa-local", "isolated")
    assert found.winner == "shared-pool"
    assert len(found.pairs) == 6
    assert all(0 < pair.outcome.measures[0].p <= ALPHA for pair in found.pairs)


def test_placements_without_a_difference_share_the_first_rank_and_nothing_wins():
    found = tournament(4, flat(4))
    assert {each.rank for each in found.places} == {1}
    assert (found.winner, [each.arm for each in found.places]) == ("", list(ARMS))


def test_of_two_equal_placements_the_first_one_wins():
    effects = {("numa-local", "run_delay"): -60.0, ("isolated", "run_delay"): -60.0}
    found = tournament(4, flat(4), effects)
    assert [each.rank for each in found.places] == [1, 1, 3, 3]
    assert found.winner == "numa-local"


def test_a_placement_that_is_better_in_one_measure_and_worse_in_another_beats_nothing():
    effects = {("numa-local", "run_delay"): -60.0, ("numa-local", "drops"): 60.0}
    found = tournament(4, flat(4, measures=(DELAY, DROPS)), effects, (DELAY, DROPS))
    assert {each.rank for each in found.places} == {1}
    assert found.winner == ""


def test_of_the_placements_that_are_better_than_the_current_one_the_first_one_wins():
    """B has more pressure than the current placement by more than the margin, and A lies between the two."""
    measures, arms = (DELAY, PRESSURE), ("current", "A", "B")
    placed = {"current": (800.0, 100.0), "A": (500.0, 115.0), "B": (480.0, 130.0)}
    effects = {
        (arm, each.name): value - 100
        for arm, values in placed.items()
        for each, value in zip(measures, values, strict=True)
    }
    found = tournament(3, flat(3, measures=measures, arms=arms), effects, measures, arms)
    assert (found.places[0].arm, found.places[0].better_than) == ("B", ("A",))
    assert found.winner == "A"


@pytest.mark.parametrize("arms", [("current", "A", "B"), ("current", "B", "A")])
@pytest.mark.parametrize(
    ("placed", "ranks"),
    [
        ({"current": (800, 6e4, 1e9), "A": (300, 6e4, 1e9), "B": (300, 9e4, 1e9)}, {"current": 3, "A": 1, "B": 1}),
        ({"current": (300, 9e4, 1e9), "A": (300, 6e4, 1e9), "B": (300, 9e4, 1e9)}, {"current": 1, "A": 1, "B": 1}),
        # The difference of the bits is 1.99 % of the larger mean, and 2.03 % of the smaller one.
        ({"current": (800, 6e4, 1e9), "A": (300, 6e4, 1e9), "B": (300, 6e4, 9.801e8)}, {"current": 3, "A": 1, "B": 1}),
    ],
    ids=["B has more packets", "A has fewer packets", "B has fewer bits within the margin"],
)
def test_the_order_of_the_plans_does_not_decide(arms, placed, ranks):
    """The same bits in fewer packets are no loss, and in more packets no gain."""
    source, names = random.Random(3), ("run_delay", "packets_in", "bits_in")

    def window(arm):
        noisy = (value + source.gauss(0, value * 1e-5) for value in placed[arm])
        return Window(arm, dict(zip(names, noisy, strict=True)))

    windows = [window(arm) for arm in schedule(12, 3, arms, BLOCK)]
    assert {each.arm: each.rank for each in ranking(windows, arms).places} == ranks


def test_the_p_values_are_corrected_for_all_pairs_and_measures():
    effects = {("numa-local", "run_delay"): -60.0}
    order = schedule(6, 1, ARMS, BLOCK)
    windows = [
        Window(arm, {"run_delay": flat(1, 6)["run_delay"][n] + effects.get((arm, "run_delay"), 0)})
        for n, arm in enumerate(order)
    ]
    (pair,) = [
        each
        for each in compare(windows, [DELAY], ARMS, BLOCK)
        if (each.first, each.second) == ("current", "numa-local")
    ]
    assert pair.outcome.measures[0].p == pytest.approx(6 * least_p(6, BLOCK))


def test_a_window_that_does_not_count_leaves_its_block_to_the_others():
    effects, arms = {("numa-local", "run_delay"): -60.0}, ARMS
    order, series = schedule(12, 2, arms, BLOCK), flat(2)["run_delay"]
    windows = [
        Window(arm, {"run_delay": series[n] + effects.get((arm, "run_delay"), 0)}) for n, arm in enumerate(order)
    ]
    windows[3] = Window(order[3], {}, {}, "guest web-1 migrated")
    found = ranking(windows, arms)
    assert (found.winner, found.windows, found.void) == ("numa-local", 47, ("guest web-1 migrated",))


def test_a_measure_that_most_windows_lack_costs_no_window():
    effects, order = {"numa-local": -60.0}, schedule(12, 2, ARMS, BLOCK)
    values = [value + effects.get(arm, 0.0) for arm, value in zip(order, flat(2)["run_delay"], strict=True)]
    windows = [Window(arm, {"run_delay": value}) for arm, value in zip(order, values, strict=True)]
    windows[5] = Window(order[5], {"run_delay": values[5], "drops": 0.0})
    found = ranking(windows, ARMS)
    assert (found.winner, found.windows, found.void) == ("numa-local", 48, ())
    assert {each.measure.name for pair in found.pairs for each in pair.outcome.measures} == {"run_delay"}


def test_a_placement_without_a_window_that_counts_is_not_ranked_above_or_below_others():
    order = schedule(12, 2, ARMS, BLOCK)
    windows = [
        Window(arm, {}, {}, "the clock jumped") if arm == "isolated" else Window(arm, {"run_delay": 1.0})
        for arm in order
    ]
    found = ranking(windows, ARMS)
    assert {each.rank for each in found.places} == {1}
    (pair,) = [each for each in found.pairs if (each.first, each.second) == ("current", "isolated")]
    assert (pair.outcome.judgement, pair.outcome.measures) == ("inconclusive", ())


@pytest.mark.parametrize("replays", [75, MANY])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_noise_alone_ranks_in_at_most_one_of_twenty_tournaments(kind, replays):
    """Ten times as large as in other tests: the margins are small against it."""
    source, arms = random.Random(f"tournament {kind.__name__}"), ARMS[:3]
    assert windows_needed(2 * 3, BLOCK) == 8, "with fewer, no noise could rank anything"
    wrong = 0
    for seed in range(replays):
        series = {each.name: [10 * value for value in kind(24, source)] for each in (DELAY, DROPS)}
        wrong += any(each.better_than for each in tournament(seed, series, None, (DELAY, DROPS), arms).places)
    print(f"{kind.__name__}: {wrong} of {replays} are false; at most {100 * upper_bound(wrong, replays):.1f} %")
    assert wrong <= most_wrong(replays)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_documented_effect_wins_beside_noise(kind):
    """Run delay of 3.1 s, of which the placement takes 1 s; rounds differ by 0.3 s."""
    source, found = random.Random(f"won {kind.__name__}"), 0
    for seed in range(POWER):
        noise = kind(10 * 3, source)
        mean, scatter = fmean(noise), pstdev(noise)
        series = {DELAY.name: [3100 + 300 * (value - mean) / scatter for value in noise]}
        effects = {("numa-local", DELAY.name): -1000.0}
        found += tournament(seed, series, effects, arms=ARMS[:3]).winner == "numa-local"
    print(f"{kind.__name__}: the placement wins {found} of {POWER}")
    assert found >= 0.95 * POWER
