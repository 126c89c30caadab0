"""The guard of a placement that is watched."""

import random
from functools import reduce

from pinner.outcome.watch import Guard, guard, is_worse


def looks_until_stopped(before: list[float], since: list[float]) -> int | None:
    """The number of values after which the guard stops; None: it does not."""
    watched = guard(before)
    for count, value in enumerate(since, 1):
        watched = watched.after(value)
        if is_worse([watched]):
            return count
    return None


def test_a_guard_that_always_looks_stops_one_of_twenty_good_placements_at_most():
    source = random.Random(1)
    stops = sum(
        looks_until_stopped(
            [source.paretovariate(1.1) for _ in range(20)], [source.paretovariate(1.1) for _ in range(60)]
        )
        is not None
        for _ in range(400)
    )
    # 5 % at most; of 400, more than 31 have a probability of 1 in 100.
    assert stops <= 31


def test_a_placement_that_delays_everybody_is_stopped_soon():
    source = random.Random(2)
    counts = [
        looks_until_stopped([source.gauss(10, 1) for _ in range(20)], [source.gauss(30, 1) for _ in range(20)])
        for _ in range(50)
    ]
    assert all(count is not None and count <= 8 for count in counts)


def test_a_better_placement_is_never_stopped():
    assert looks_until_stopped([float(index % 5 + 10) for index in range(20)], [1.0] * 100) is None


def test_equal_values_stop_nothing():
    assert looks_until_stopped([0.0] * 10, [0.0] * 500) is None


def test_one_of_several_measures_is_enough_if_it_is_clear():
    calm = reduce(Guard.after, [10.0, 11.0] * 5, guard((10.0, 11.0) * 10))
    bad = reduce(Guard.after, [90.0 + index for index in range(10)], guard((10.0, 11.0) * 10))
    assert is_worse([calm, calm, bad])
    assert not is_worse([calm, calm, calm])
