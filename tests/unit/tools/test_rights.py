"""The table of rights, and tests that are left out for want of one."""

import subprocess
import sys
from pathlib import Path

import pytest
import rights

pytest_plugins = ["pytester"]

TOOLS = Path(rights.__file__).parent
TESTS = """
import pytest
from support import needs

@pytest.fixture
def with_root():
    needs.require("root")

@pytest.mark.needs("two_cpus", "taps")
@pytest.mark.parametrize("number", range(3))
def test_marked(number): raise AssertionError

def test_with_a_fixture(with_root): raise AssertionError

@pytest.mark.needs("two_cpus")
def test_with_all_rights(): pass
"""
AS_NOBODY = """
import os, sys
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.argv[1:] = ["root", "two_cpus"]
exec(sys.stdin.read())
"""


def test_a_right_that_is_missing_is_named_with_the_reason(monkeypatch):
    monkeypatch.setattr(rights, "_reasons", lambda: {"root": "", "mounts": "unshare: Operation not permitted"})
    assert rights.lacking("root", "mounts") == "mounts"
    assert rights.lacking("root") == ""
    assert rights.why("mounts") == "unshare: Operation not permitted"
    with pytest.raises(KeyError):
        rights.lacking("rots")


def test_each_right_is_tried_once_and_without_traceback():
    reasons = rights._reasons()
    assert list(reasons) == list(rights.RIGHTS)
    assert not [reason for reason in reasons.values() if "Traceback" in reason]
    assert rights._reasons() is reasons


@pytest.mark.needs("root", "two_cpus")
def test_the_program_names_what_another_user_lacks():
    program = Path(rights.__file__).read_text()
    done = subprocess.run([sys.executable, "-c", AS_NOBODY], input=program, capture_output=True, text=True)
    assert done.stderr == ""
    assert done.returncode == 1
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [["root", "no"]]


def test_the_last_lines_count_the_tests_of_all_workers_that_a_right_would_add(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest(
        "import rights\n"
        "from support import needs\n"
        "rights._reasons = lambda: {'root': 'no', 'taps': 'not here', 'two_cpus': ''}\n"
        "def pytest_addoption(pluginmanager): pluginmanager.register(needs)\n"
    )
    pytester.makepyfile(test_marked=TESTS)
    pytester.makeini(f"[pytest]\npythonpath = {TOOLS} {TOOLS.parent}/tests\nmarkers =\n    needs(*rights): a right\n")
    done = pytester.runpytest_subprocess("-rs", "-p", "xdist", "-n", "2")
    done.assert_outcomes(passed=1, skipped=4)
    done.stdout.fnmatch_lines(["SKIPPED * needs taps: make taps, as network cards of guests (not here)"])
    done.stdout.fnmatch_lines(
        [
            "*4 tests were left out for want of a right*",
            "    3 taps: make taps, as network cards of guests",
            "    1 root: act as root",
        ]
    )
