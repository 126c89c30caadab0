"""The verdict of a probe, on series with and without an effect."""

import random
from itertools import combinations

import pytest
from support.examples import examples
from support.made_up.series import KINDS, Series, most_wrong, upper_bound

from pinner.model.outcome.outcome import MEASURES, Arm, Measure, Outcome, Window
from pinner.outcome.verdict import holm, judge, least_p, outcome, schedule, shift, two_sided, windows_needed

DELAY = Measure("run_delay", "ms/s", 0.5)
DROPS = Measure("drops", "packets/s", 1.0)
PROBES, REPLAYS = examples(300), examples(50)
FIVE = tuple(Measure(f"measure{index}", "", 0.5) for index in range(5))


def probe(series: Series, seed: int, effect: float = 0.0, measure: Measure = DELAY) -> Outcome:
    """The verdict on a series, with ``effect`` added in the windows with the planned placement."""
    arms = schedule(len(series) // 2, seed)
    windows = [
        Window(arm, {measure.name: value + (effect if arm == "planned" else 0)})
        for arm, value in zip(arms, series, strict=True)
    ]
    return judge(windows, [measure])


def test_the_p_value_is_the_share_of_orders_with_such_a_difference():
    values, planned = (5.0, 1.0, 4.0, 2.0, 3.0, 9.0), (True, False, True, False, False, True)
    drawn = 6.0 - 2.0
    differences = []
    for order in combinations(range(6), 3):
        inside = sum(values[index] for index in order) / 3
        differences.append(inside - (sum(values) - 3 * inside) / 3)
    share = sum(difference >= drawn - 1e-9 for difference in differences) / len(differences)
    assert shift(values, planned).p()[0] == pytest.approx(share)


def test_the_interval_has_the_shifts_that_the_test_does_not_refuse():
    source = random.Random(5)
    values = [source.gauss(10, 1) for _ in range(12)]
    arms = [arm == "planned" for arm in schedule(6, 5)]
    found = shift(values, arms)
    low, high = found.interval(0.05)
    for tried, refused in ((low - 0.01, True), (low + 0.01, False), (high - 0.01, False), (high + 0.01, True)):
        moved = [value - tried * is_planned for value, is_planned in zip(values, arms, strict=True)]
        assert (two_sided(shift(moved, arms).p()) <= 0.05) == refused


def test_five_measures_need_five_windows_of_each_placement():
    assert windows_needed(5) == 5
    assert least_p(5) == pytest.approx(2 / 252)


def traffic(seed: int, **effects: float) -> Outcome:
    """The verdict on a guest that receives 250,000 packets/s and 1 Gb/s, without drops; the plan adds ``effects``."""
    source, kept = random.Random(seed), {"drops": 0.0, "packets_in": 250_000.0, "bits_in": 1e9}
    windows = [
        Window(
            arm,
            {
                name: value * source.uniform(0.99, 1.01) + (effects.get(name, 0.0) if arm == "planned" else 0.0)
                for name, value in kept.items()
            },
        )
        for arm in schedule(8, seed)
    ]
    return judge(windows, [measure for measure in MEASURES if measure.name in kept])


def by_name(tested: Outcome) -> dict[str, str]:
    return {result.measure.name: result.judgement for result in tested.measures}


@pytest.mark.parametrize(
    ("effects", "judgement"),
    [
        ({"packets_in": 250_000.0, "bits_in": 1e9}, "better"),
        ({"packets_in": 250_000.0, "bits_in": 1e9, "drops": 500.0}, "worse"),
        ({"packets_in": -100_000.0, "bits_in": -4e8}, "worse"),
        ({"packets_in": -100_000.0}, "no matter"),  # larger packets carry the same bits
        ({"packets_in": -100_000.0, "bits_in": 4e8}, "better"),
        ({"packets_in": 100_000.0, "bits_in": -4e8}, "worse"),
        ({"packets_in": 300.0, "bits_in": 1e6}, "no matter"),
    ],
)
def test_more_traffic_without_drops_is_better_and_less_is_worse(effects, judgement):
    assert traffic(3, **effects).judgement == judgement


@pytest.mark.parametrize(("small", "judgement"), [(5e7, "no matter"), (25e6, "worse")])
def test_bits_of_another_guest_excuse_no_guest_that_gets_fewer_small_packets(small, judgement):
    """Guest "a" has 5e7 bits of 5e9, so the sum hides them."""
    source = random.Random(3)

    def window(arm: Arm) -> Window:
        of = {"a": small if arm == "planned" else 5e7, "b": 5e9}
        of = {guest: value * source.uniform(0.998, 1.002) for guest, value in of.items()}
        packets = 470_000.0 if arm == "planned" else 520_000.0
        values = {"packets_in": packets * source.uniform(0.998, 1.002), "bits_in": sum(of.values())}
        return Window(arm, values, bits={"bits_in": of})

    assert outcome([window(arm) for arm in schedule(8, 3)]).judgement == judgement


def test_a_small_share_of_much_traffic_does_not_matter_as_much_as_the_same_number_of_drops():
    assert by_name(traffic(3, drops=500.0)) == {"drops": "worse", "packets_in": "no matter", "bits_in": "no matter"}


def test_a_sender_that_stops_within_a_probe_makes_at_most_one_of_twenty_plans_better_or_worse():
    """The order of the windows is drawn without a look at the traffic."""
    packets = next(measure for measure in MEASURES if measure.name == "packets_in")
    noise = random.Random(5)
    series = [250_000.0 + noise.gauss(0, 5000) if number < 9 else noise.uniform(0, 20) for number in range(16)]
    wrong = sum(probe(series, seed, measure=packets).judgement in ("better", "worse") for seed in range(PROBES))
    print(f"{wrong} of {PROBES} are false")
    assert wrong <= most_wrong(PROBES)


def test_holm_corrects_for_the_number_of_measures():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx((0.03, 0.06, 0.06))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_noise_alone_gives_better_or_worse_in_at_most_one_of_twenty_probes(kind):
    source = random.Random(f"noise {kind.__name__}")
    wrong = sum(probe(kind(12, source), seed).judgement in ("better", "worse") for seed in range(PROBES))
    most = f"at most {100 * upper_bound(wrong, PROBES):.1f} % (95 % interval)"
    print(f"{kind.__name__}: {wrong} of {PROBES} are false; {most}")
    assert wrong <= most_wrong(PROBES)


def test_noise_of_five_measures_that_move_together_is_no_verdict():
    source = random.Random(31)
    wrong = 0
    for seed in range(PROBES):
        arms, common = schedule(5, seed), KINDS[0](10, source)
        windows = [
            Window(arm, {measure.name: value + source.gauss(0, 0.2) for measure in FIVE})
            for arm, value in zip(arms, common, strict=True)
        ]
        wrong += judge(windows, FIVE).judgement in ("better", "worse")
    assert wrong <= most_wrong(PROBES)


def test_the_documented_effect_is_found_in_nineteen_of_twenty_probes():
    # Drops of 9,537 packets before and none after; run delay of 3.1 s and 2.1 s in a run of some minutes.
    source = random.Random(17)
    found = 0
    for seed in range(REPLAYS):
        series = tuple(3.1 + source.gauss(0, 0.3) for _ in range(16))
        found += probe(series, seed, -1.0, Measure("run_delay", "s", 0.1)).judgement == "better"
    assert found >= 0.96 * REPLAYS


def test_a_placement_that_delays_the_guest_is_worse():
    outcome = probe(tuple(float(10 + index % 3) for index in range(12)), 3, effect=9.0)
    assert outcome.judgement == "worse"
    assert outcome.measures[0].effect == pytest.approx(9.0, abs=1.0)


def test_one_worse_measure_makes_the_verdict_worse_beside_a_better_one():
    arms = schedule(6, 9)
    windows = [
        Window(arm, {"run_delay": index % 3 - 9.0 * (arm == "planned"), "drops": index % 2 + 9.0 * (arm == "planned")})
        for index, arm in enumerate(arms)
    ]
    outcome = judge(windows, [DELAY, DROPS])
    assert [result.judgement for result in outcome.measures] == ["better", "worse"]
    assert outcome.judgement == "worse"


def test_a_certain_difference_inside_the_margin_does_not_outweigh_one_that_matters():
    arms, pressure = schedule(6, 9), Measure("pressure", "ms/s", 20.0)
    windows = [
        Window(
            arm, {"run_delay": index % 3 - 9.0 * (arm == "planned"), "pressure": 998 + index % 2 + (arm == "planned")}
        )
        for index, arm in enumerate(arms)
    ]
    outcome = judge(windows, [DELAY, pressure])
    assert [result.judgement for result in outcome.measures] == ["better", "no matter"]
    assert outcome.judgement == "better"


def test_an_interval_inside_the_margin_does_not_matter():
    assert probe(tuple(10 + (index % 4) / 100 for index in range(12)), 4).judgement == "no matter"


def test_equal_values_do_not_matter():
    assert probe((0.0,) * 12, 4).judgement == "no matter"


def test_too_few_windows_are_inconclusive_and_the_missing_ones_are_counted():
    outcome = probe((10.0, 20.0, 11.0, 22.0), 1, effect=-5.0)
    assert outcome.judgement == "inconclusive"
    assert outcome.measures[0].low is None
    assert outcome.missing == windows_needed(1) - 2


def test_wide_noise_is_inconclusive_with_a_number_of_missing_windows():
    source = random.Random(2)
    outcome = probe(tuple(source.gauss(10, 8) for _ in range(12)), 2, effect=-1.0)
    assert outcome.judgement == "inconclusive"
    assert outcome.missing > 6


def test_void_windows_do_not_count_and_are_named():
    arms = schedule(5, 8)
    windows = [Window(arm, {"run_delay": 10.0 + index % 2}) for index, arm in enumerate(arms)]
    void = Window("planned", {"run_delay": 1e9}, void="guest web-1 migrated")
    outcome = judge([*windows, void], [DELAY])
    assert outcome.void == ("guest web-1 migrated",)
    assert outcome.windows == 10
    assert outcome.measures == judge(windows, [DELAY]).measures


def test_without_a_window_of_one_placement_there_is_no_verdict():
    outcome = judge(
        [Window("current", {"run_delay": 1.0}, void="the clock jumped"), Window("planned", {"run_delay": 1.0})], [DELAY]
    )
    assert (outcome.judgement, outcome.measures) == ("inconclusive", ())


def test_guests_that_the_plan_does_not_touch_take_their_share_of_the_noise_out():
    source = random.Random(77)
    arms = schedule(6, 77)
    load = [source.gauss(50, 20) for _ in arms]
    windows = [
        Window(arm, {"run_delay": each + source.gauss(0, 0.5) - 5 * (arm == "planned")}, {"run_delay": each / 2})
        for arm, each in zip(arms, load, strict=True)
    ]
    alone = [Window(window.arm, window.values) for window in windows]
    assert judge(alone, [DELAY]).judgement == "inconclusive"
    assert judge(windows, [DELAY]).judgement == "better"


def test_many_windows_are_judged_by_a_sample_of_orders_and_alike_each_time():
    source = random.Random(6)
    series = tuple(source.gauss(10, 1) for _ in range(40))
    assert probe(series, 6, -2.0) == probe(series, 6, -2.0)
    assert probe(series, 6, -2.0).judgement == "better"


def test_each_order_of_a_schedule_is_drawn_alike():
    drawn = [schedule(2, seed) for seed in range(6_000)]
    assert len(set(drawn)) == 6
    for order in set(drawn):
        assert 850 < drawn.count(order) < 1_150
