"""Probes replayed from series: without any difference between the placements, and with the documented one."""

import random
from statistics import fmean, pstdev

import pytest
from support.examples import examples
from support.made_up.series import KINDS, busy_host, most_wrong, upper_bound

from pinner.model.outcome.outcome import MEASURES, WASH_OUT_SECONDS, Measure, Window
from pinner.outcome.verdict import judge, schedule

SECONDS = 20
"""The default length of a window."""
DELAY, DROPS, SOFTNET, PRESSURE, *_ = MEASURES
PROBES, REPLAYS = examples(300), examples(50)
DOCUMENTED, SCATTER = -1.0, 0.3
"""The documented run delay: 3.1 s before the plan, and 2.1 s after it; rounds differ by 0.3 s."""


@pytest.fixture(scope="module")
def recorded():
    return busy_host()


def windows_from(recorded, count, source):
    """The means of ``count`` windows of a probe that began at a random second, each after its wash-out."""
    length = WASH_OUT_SECONDS + SECONDS
    begin = source.randrange(len(recorded) - count * length + 1)
    parts = [recorded[begin + n * length + WASH_OUT_SECONDS : begin + (n + 1) * length] for n in range(count)]
    return [tuple(map(fmean, zip(*part, strict=True))) for part in parts]


def judged(arms, values):
    """The verdict on windows without control; ``values`` are series by the name of their measure."""
    measures = [measure for measure in MEASURES if measure.name in values]
    windows = [Window(arm, {name: series[index] for name, series in values.items()}) for index, arm in enumerate(arms)]
    return judge(windows, measures).judgement


def report(name, wrong):
    print(f"{name}: {wrong} of {PROBES} are false; at most {100 * upper_bound(wrong, PROBES):.1f} % (95 % interval)")
    assert wrong <= most_wrong(PROBES)


@pytest.mark.parametrize("windows", [6, pytest.param(8, marks=pytest.mark.slow("replays of probes: more windows"))])
def test_recorded_noise_gives_better_or_worse_in_at_most_one_of_twenty_probes(recorded, windows):
    source, wrong = random.Random(f"recorded {windows}"), 0
    for seed in range(PROBES):
        delay, pressure = zip(*windows_from(recorded, 2 * windows, source), strict=True)
        found = judged(schedule(windows, seed), {DELAY.name: delay, PRESSURE.name: pressure})
        wrong += found in ("better", "worse")
    report(f"recorded, {windows} windows of each placement", wrong)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_noise_of_all_measures_gives_better_or_worse_in_at_most_one_of_twenty_probes(kind):
    """Ten times as large as in other tests: the margins are small against it."""
    source, wrong = random.Random(f"replay {kind.__name__}"), 0
    for seed in range(PROBES):
        values = {measure.name: [10 * value for value in kind(12, source)] for measure in MEASURES}
        wrong += judged(schedule(6, seed), values) in ("better", "worse")
    report(f"{kind.__name__}, all measures", wrong)


def of_scatter(series):
    """The series with the documented mean and scatter."""
    mean, scatter = fmean(series), pstdev(series)
    return [3.1 + SCATTER * (value - mean) / scatter for value in series]


def powered(name, series_of, source):
    """How many replays of the documented effect are better."""
    measure = Measure("run_delay", "s", 0.1)
    found = 0
    for seed in range(REPLAYS):
        arms = schedule(8, seed)
        noise = of_scatter(series_of(source))
        windows = [
            Window(arm, {"run_delay": value + (DOCUMENTED if arm == "planned" else 0.0)})
            for arm, value in zip(arms, noise, strict=True)
        ]
        found += judge(windows, [measure]).judgement == "better"
    print(f"{name}: {found} of {REPLAYS} are better")
    return found


def test_the_documented_effect_is_found_beside_recorded_noise(recorded):
    source = random.Random("recorded power")
    found = powered("recorded", lambda source: [delay for delay, _ in windows_from(recorded, 16, source)], source)
    assert found >= 0.96 * REPLAYS


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_documented_effect_is_found_beside_made_up_noise(kind):
    assert (
        powered(kind.__name__, lambda source: kind(16, source), random.Random(f"power {kind.__name__}"))
        >= 0.96 * REPLAYS
    )
