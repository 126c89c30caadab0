"""Which tests run: the fast set, all, or one slice of the slow tests."""

import pytest
from support.slow import Slice

pytest_plugins = "pytester"

TESTS = """
import pytest

def test_fast(): pass

@pytest.mark.slow("whole budgets")
def test_slow(): pass

@pytest.mark.parametrize("kind", ["sqlite", pytest.param("mariadb", marks=pytest.mark.slow("another database"))])
def test_stores(kind): pass
"""


@pytest.fixture
def run(pytester: pytest.Pytester):
    pytester.makeini("[pytest]\nmarkers =\n    slow(reason): costly\n")
    pytester.makepyfile(test_one=TESTS, test_two=TESTS)
    return lambda *arguments: pytester.runpytest("-p", "support.slow", "-v", *arguments)


def outcome(result: pytest.RunResult) -> set[str]:
    return {line.split()[0] for line in result.outlines if " PASSED" in line}


def test_slow_tests_are_left_out_and_counted_by_reason(run):
    result = run()
    assert outcome(result) == {f"test_{n}.py::test_{t}" for n in ("one", "two") for t in ("fast", "stores[sqlite]")}
    result.stdout.fnmatch_lines(["*4 slow tests were left out; --all*", "*2 another database", "*2 whole budgets"])


def test_all_tests_run_when_all_are_asked_for(run):
    run("--all").assert_outcomes(passed=8, warnings=1)


def test_each_slow_test_is_in_one_slice(run):
    slices = [outcome(run("--slow-of", f"{number}/3")) for number in (1, 2, 3)]
    tests = [test for tests in slices for test in tests]
    slow = ("slow", "stores[mariadb]")
    assert sorted(tests) == sorted(f"test_{number}.py::test_{name}" for number in ("one", "two") for name in slow)


def test_the_slow_tests_of_a_named_file_join_a_slice(run):
    empty = next(f"{number}/4" for number in (1, 2, 3, 4) if not outcome(run("--slow-of", f"{number}/4")))
    assert outcome(run("--slow-of", empty, "--slow-also", "test_two.py")) == {
        "test_two.py::test_slow",
        "test_two.py::test_stores[mariadb]",
    }


@pytest.mark.parametrize("text", ["0/4", "5/4", "1", "a/b", "1/0", "-1/4"])
def test_a_slice_that_does_not_exist_is_refused(run, text):
    result = run(f"--slow-of={text}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"*'{text}' must be K/N, with K from 1 to N"])


def test_a_slice_does_not_depend_on_other_files():
    assert [Slice(number, 4).has("tests/unit/test_slow.py") for number in (1, 2, 3, 4)].count(True) == 1
