"""The figures of the house that must not get worse."""

from pathlib import Path

import house_figures

CHECKOUT = Path(house_figures.__file__).parents[1]


def test_the_way_of_a_run_to_the_system_call_gets_no_longer():
    ways = house_figures.ways(CHECKOUT)
    numbers = {name: [int(part.split()[0]) for part in figure.split(", ")] for name, figure in ways.items()}
    assert numbers.keys() == {"way of pinner apply", "way of reconcile"}
    for files, frames, _ in numbers.values():
        assert 0 < files <= 16
        assert 0 < frames <= 14


def test_each_class_name_has_one_meaning():
    assert house_figures.figures(CHECKOUT)["class names with two meanings"] == "0 "
