"""The figures of the house that must not get worse."""

from functools import cache
from pathlib import Path

import house_figures

CHECKOUT = Path(house_figures.__file__).parents[1]


@cache
def figures() -> dict[str, str]:
    return house_figures.figures(CHECKOUT)


def test_the_way_of_a_run_to_the_system_call_gets_no_longer():
    ways = house_figures.ways(CHECKOUT)
    numbers = {name: [int(part.split()[0]) for part in figure.split(", ")] for name, figure in ways.items()}
    assert numbers.keys() == {"way of pinner apply", "way of reconcile"}
    for files, frames, _ in numbers.values():
        assert 0 < files <= 16
        assert 0 < frames <= 14


def test_each_class_name_has_one_meaning():
    assert figures()["class names with two meanings"] == "0 "


def test_files_functions_and_folders_stay_small():
    texts = house_figures.modules(CHECKOUT, house_figures.CODE)
    assert {str(file) for file, text in texts.items() if text.count("\n") > 400} == set()
    assert int(figures()["longest function"].partition(" ")[0]) <= 40
    assert figures()["folders with more than 15 loose files"] == "0 "
