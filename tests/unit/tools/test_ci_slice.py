"""What CI runs beside the fast set: the number of the commit chooses."""

import subprocess

import ci_slice
import pytest


def choices(count: int) -> list[ci_slice.Choice]:
    return [ci_slice.choose(number, [], []) for number in range(count)]


def test_every_system_and_slice_comes_in_turn():
    turns = choices(12)
    assert {(turn.system, turn.slow_of) for turn in turns} == {
        (system, number) for system in ci_slice.SYSTEMS for number in (1, 2, 3, 4)
    }


def test_every_topology_comes_in_turn():
    assert {turn.topology for turn in choices(16)} == set(ci_slice.TOPOLOGIES)


def test_touched_test_files_are_named_once():
    touched = ["tests/unit/test_b.py", "tests/unit/conftest.py", "pinner/a.py", "tests/unit/test_b.py"]
    assert ci_slice.choose(7, touched, []).touched == ("tests/unit/test_b.py",)


def test_a_change_of_very_many_files_adds_none_to_the_slice():
    touched = [f"tests/unit/test_{number}.py" for number in range(ci_slice.MOST_TOUCHED + 1)]
    assert ci_slice.choose(7, touched, []).touched == ()
    assert ci_slice.choose(7, touched[1:], []).touched == tuple(sorted(touched[1:]))


def test_the_slow_tests_of_this_commit_can_be_told():
    try:
        choice = ci_slice.of_head()
    except subprocess.CalledProcessError:
        pytest.skip("needs the repository")
    assert choice.slow_of in (1, 2, 3, 4)
