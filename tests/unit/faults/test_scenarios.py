"""The random scenarios of tests/faults: the same seed gives the same ones, and failing ones are shortened."""

import inspect

import pytest
from faults.actions import Actions
from faults.scenarios import CHOICES, OFTEN, RARE, draw, shortest
from hypothesis import given
from hypothesis import strategies as st

KINDS = {name: kind for name, kind in inspect.getmembers(Actions, inspect.isfunction) if not name.startswith("_")}


def test_a_story_is_the_same_for_the_same_seed():
    assert draw(7, 3) == draw(7, 3)
    assert draw(7, 3) != draw(7, 4) != draw(8, 3)
    assert draw(7, 3, steps=40)[0].name in KINDS


def test_every_kind_of_step_is_drawn_with_every_choice():
    drawn = [step for scenario in range(200) for step in draw(1, scenario)]
    assert {step.name for step in drawn} == set(KINDS)
    assert {(name, value) for step in drawn for name, value in step.arguments.items()} == {
        (name, value) for name, values in CHOICES.items() for value in values
    }
    assert set(KINDS) >= RARE | OFTEN


@pytest.mark.parametrize("name", KINDS)
def test_a_step_is_printed_with_its_arguments(name):
    step = next(step for scenario in range(200) for step in draw(1, scenario) if step.name == name)
    assert str(step).startswith(name.replace("_", " "))
    assert set(step.arguments) == set(inspect.signature(KINDS[name]).parameters) - {"self"}


@given(st.integers(1, 30), st.sets(st.integers(0, 29)))
def test_a_failing_scenario_is_shortened_to_the_steps_it_needs(length, culprits):
    needed = {number for number in culprits if number < length} or {0}
    assert set(shortest(range(length), lambda numbers: needed <= set(numbers))) == needed


def test_a_scenario_that_needs_all_its_steps_keeps_them():
    assert shortest(range(9), lambda numbers: len(numbers) == 9) == list(range(9))
