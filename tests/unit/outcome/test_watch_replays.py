"""Watches replayed from series: of runs that make no difference, and of worse ones."""

import random
from functools import partial
from statistics import fmean

import pytest
from support.made_up.series import (
    KINDS,
    bursts,
    busy_host,
    crowded_host,
    cyclic,
    high_bursts,
    jumping_host,
    on_and_off,
    remembering,
    skewed,
    skewed_more,
    upper_bound,
    wandering,
)
from support.values import NOON

from pinner.model.outcome.outcome import MEASURES, Sample
from pinner.model.run.journal import WATCH_FOLD
from pinner.outcome.watch import least_steps, worse

DELAY, DROPS, SOFTNET, PRESSURE, *_ = MEASURES
WATCHES, HARMED = 300, 50
MANY = 1200
"""The replays of loads that stop up to 4 % of the runs: 300 would be above 5 % now and then."""
GAP = 3
"""The steps that the changes of a run take."""
SHORT = 8
"""The steps of a watch of 30 s, the default."""
BEFORE = (50, 80, 140, 360, 600)
"""The steps before the run: the fewest for the shortest watch, and for one of 30 s; ten minutes, half an hour, and the
most for one of four minutes."""
MORE = pytest.mark.slow("replays of watches: more lengths")
PAIRS = [
    pytest.param(before, before // WATCH_FOLD, marks=() if before == 80 else MORE, id=f"{before}") for before in BEFORE
]
"""The steps before a run and those of the longest watch that they allow. The fast set has the default watch."""


def by_steps(seconds):
    """The means of each five seconds."""
    return [tuple(map(fmean, zip(*seconds[at : at + 5], strict=True))) for at in range(0, len(seconds) - 4, 5)]


RECORDED = {"busy": lambda: by_steps(busy_host()), "crowded": crowded_host}
"""The run delay and the pressure of hosts in steps of 5 s."""


def watched(before, values):
    """The measures that the watch of a run finds worse. ``values`` are steps by the names of their measures."""
    length = min(map(len, values.values()))
    steps = [Sample(NOON, {name: each[index] for name, each in values.items()}, {}) for index in range(length)]
    return worse(steps[:before], steps[before + GAP :], length - before, least_steps(length - before - GAP))


def false_stops(name, before, steps, noise, watches=WATCHES):
    """Replay watches of runs that make no difference. At most one of twenty may be stopped."""
    source = random.Random(f"{name} {before} {steps}")
    wrong = sum(bool(watched(before, noise(before + GAP + steps, source))) for _ in range(watches))
    most = f"at most {100 * upper_bound(wrong, watches):.1f} % (95 % interval)"
    print(f"{name}, {before} steps before, a watch of {steps}: {wrong} of {watches} are stopped; {most}")
    assert wrong <= watches / 20


def found(name, before, steps, noise, harm, measure=DELAY):
    """How many of the replayed watches find the measure worse; ``harm`` is what the run makes of a value."""
    source, count = random.Random(f"{name} {before} {steps}"), 0
    for _ in range(HARMED):
        values = noise(before + GAP + steps, source)
        known = values[measure.name]
        harmed = {measure.name: (*known[:before], *map(harm, known[before:]))}
        count += measure in watched(before, values | harmed)
    print(f"{name}, {before} steps before, a watch of {steps}: {count} of {HARMED} are found")
    return count


def steps_from(recorded, count, source):
    """The run delay and the pressure in ``count`` steps, from a random one on."""
    begin = source.randrange(len(recorded) - count + 1)
    delay, pressure = zip(*recorded[begin : begin + count], strict=True)
    return {DELAY.name: delay, PRESSURE.name: pressure}


def four(kind, count, source, factor=1):
    """The four measures of a host that pings no guest; nothing is dropped. ``factor``: so large are the values, that
    the margin is small against them."""
    none = [0.0] * count
    delay, pressure = ([each * value for value in kind(count, source)] for each in (factor, 5 * factor))
    return {DELAY.name: delay, DROPS.name: none, SOFTNET.name: none, PRESSURE.name: pressure}


def one_load(kind, count, source):
    """The four measures of a host whose run delay and pressure have the same load."""
    none, load = [0.0] * count, kind(count, source)
    return {DELAY.name: load, DROPS.name: none, SOFTNET.name: none, PRESSURE.name: [5 * value for value in load]}


def received(kind, count, source):
    """The measures of a guest that receives the packets of a load, and loses none."""
    none, load = [0.0] * count, kind(count, source)
    packets = {"packets_in": [1000 * value for value in load], "bits_in": [1e6 * value for value in load]}
    return {DELAY.name: none, DROPS.name: none, SOFTNET.name: none, PRESSURE.name: none, **packets}


def bursts_of_drops(count, source):
    """The four measures of a quiet host on which packets are dropped now and then."""
    none = [0.0] * count
    return {DELAY.name: none, DROPS.name: bursts(count, source), SOFTNET.name: none, PRESSURE.name: none}


@pytest.mark.parametrize(("before", "steps"), PAIRS[:3])
@pytest.mark.parametrize("host", ["busy", "crowded"])
def test_a_watch_beside_recorded_noise_stops_one_of_twenty_runs_at_most(host, before, steps):
    """A host's pressure stays high for half a minute: bets on single steps stopped up to half of such runs."""
    false_stops(f"recorded, {host}", before, steps, partial(steps_from, RECORDED[host]()))


@pytest.mark.parametrize(
    ("before", "steps"), [*PAIRS, pytest.param(360, SHORT, marks=MORE), pytest.param(600, SHORT, marks=MORE)]
)
def test_a_watch_beside_a_load_that_jumps_stops_one_of_twenty_runs_at_most(before, steps):
    """Every third begin is replayed: each jump is in many."""
    delay, pressure = zip(*jumping_host(), strict=True)
    count = before + GAP + steps
    begins = range(0, len(delay) - count + 1, 3)
    parts = ({DELAY.name: delay[at : at + count], PRESSURE.name: pressure[at : at + count]} for at in begins)
    wrong = sum(bool(watched(before, part)) for part in parts)
    print(f"jumping, {before} steps before, a watch of {steps}: {wrong} of {len(begins)} are stopped")
    assert wrong <= len(begins) / 20


@pytest.mark.parametrize("kind", [*KINDS, cyclic, wandering], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize(("before", "steps"), PAIRS)
def test_a_watch_beside_made_up_noise_stops_one_of_twenty_runs_at_most(kind, before, steps):
    false_stops(kind.__name__, before, steps, partial(four, kind, factor=20))


@pytest.mark.parametrize(("before", "steps"), PAIRS)
@pytest.mark.parametrize("memory", [0, 0.3, 0.6, 0.9])
@pytest.mark.parametrize("kind", [remembering, skewed], ids=lambda kind: kind.__name__)
def test_a_watch_beside_noise_with_a_memory_stops_one_of_twenty_runs_at_most(kind, memory, before, steps):
    false_stops(f"{kind.__name__} {memory}", before, steps, partial(four, partial(kind, memory)))


@pytest.mark.parametrize(("before", "steps"), PAIRS)
def test_bursts_of_drops_stop_one_of_twenty_runs_at_most(before, steps):
    false_stops("bursts", before, steps, bursts_of_drops)


@pytest.mark.parametrize(("before", "steps"), PAIRS)
@pytest.mark.parametrize(("on", "off"), [(60, 180), (60, 600), (60, 1800), (180, 1800)])
def test_a_load_that_comes_and_goes_stops_one_of_twenty_runs_at_most(on, off, before, steps):
    """At random times. After a time before of twice the watch, up to a sixth of such runs were stopped. Two such loads
    of their own, one of each measure, stop up to twice as many: see docs/measures.md."""
    false_stops(f"{on} s on, {off} s off", before, steps, partial(one_load, partial(on_and_off, on, off)), MANY)


@pytest.mark.parametrize(("before", "steps"), PAIRS)
@pytest.mark.parametrize(("on", "off"), [(60, 600), (600, 60), (1800, 60), (1800, 180)])
def test_a_sender_that_comes_and_goes_stops_one_of_twenty_runs_at_most(on, off, before, steps):
    """At random times: less traffic is worse, so the short silence is the danger here."""
    false_stops(f"sent {on} s, silent {off} s", before, steps, partial(received, partial(on_and_off, on, off)), MANY)


@pytest.mark.parametrize(("before", "steps"), PAIRS)
def test_a_skewed_load_with_a_long_memory_stops_one_of_twenty_runs_at_most(before, steps):
    false_stops("0.95 of the logarithm", before, steps, partial(four, skewed_more))


@pytest.mark.parametrize(("before", "steps"), PAIRS)
@pytest.mark.parametrize("every", [120, 600, 1800])
def test_bursts_of_any_height_stop_one_of_twenty_runs_at_most(every, before, steps):
    false_stops(f"once in {every} s", before, steps, partial(one_load, partial(high_bursts, every)), MANY)


@pytest.mark.parametrize(("host", "before"), [("busy", 80), ("busy", 140), ("crowded", 80), ("crowded", 360)])
def test_a_watch_finds_a_large_delay_beside_recorded_noise(host, before):
    """By far most plans that are worse: 400 ms more in each second."""
    noise = partial(steps_from, RECORDED[host]())
    assert found(f"recorded, {host}", before, SHORT, noise, lambda delay: delay + 400) >= 48


@pytest.mark.parametrize("memory", [0, 0.3, 0.6, 0.9])
@pytest.mark.parametrize(("before", "large", "three_times"), [(80, 48, 35), (140, 48, 40), (600, 48, 45)])
def test_a_watch_finds_a_large_delay_and_three_times_the_delay(memory, before, large, three_times):
    name, noise = f"a memory of {memory}", partial(four, partial(remembering, memory))
    assert found(f"400 ms/s more, {name}", before, SHORT, noise, lambda delay: delay + 400) >= large
    assert found(f"three times, {name}", before, SHORT, noise, lambda delay: 3 * delay) >= three_times


@pytest.mark.parametrize("before", BEFORE[1:])
def test_a_watch_finds_drops_where_nothing_was_dropped_before(before):
    noise = partial(four, partial(remembering, 0.9))
    assert found("drops", before, SHORT, noise, lambda drops: drops + 2000, DROPS) == HARMED
