"""Stories are the same for the same seed, and a failing one is made short."""

import inspect

import pytest
from faults.actions import Actions
from faults.scenarios import CHOICES, OFTEN, RARE, draw, shortest
from hypothesis import given
from hypothesis import strategies as st

KINDS = {name: kind for name, kind in vars(Actions).items() if not name.startswith("_")}


def test_a_story_is_the_same_for_the_same_seed():
    assert draw(7, 3) == draw(7, 3)
    assert draw(7, 3) != draw(7, 4) != draw(8, 3)
    assert draw(7, 3, steps=40)[0].name in KINDS


def test_every_kind_of_step_comes_with_every_choice():
    drawn = [step for story in range(200) for step in draw(1, story)]
    assert {step.name for step in drawn} == set(KINDS)
    assert {(name, value) for step in drawn for name, value in step.arguments.items()} == {
        (name, value) for name, values in CHOICES.items() for value in values
    }
    assert set(KINDS) >= RARE | OFTEN


@pytest.mark.parametrize("name", KINDS)
def test_a_step_is_told_with_its_arguments(name):
    step = next(step for story in range(200) for step in draw(1, story) if step.name == name)
    assert str(step).startswith(name.replace("_", " "))
    assert set(step.arguments) == set(inspect.signature(KINDS[name]).parameters) - {"self"}


@given(st.integers(1, 30), st.sets(st.integers(0, 29)))
def test_what_a_failure_needs_is_all_that_is_left(length, culprits):
    needed = {number for number in culprits if number < length} or {0}
    assert set(shortest(range(length), lambda numbers: needed <= set(numbers))) == needed


def test_what_fails_only_as_a_whole_stays_whole():
    assert shortest(range(9), lambda numbers: len(numbers) == 9) == list(range(9))
