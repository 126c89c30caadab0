"""A run of tests of changed code ends, whatever the change makes them do, and so does all that they started."""

import os
import subprocess
from pathlib import Path

import bounded_tests
import psutil
import pytest

OPTIONS = ("-c", "/dev/null", "--rootdir", ".", "--capture=no", "test_it.py")
LEAVES_A_PROCESS = """
import os, pathlib, subprocess

def test_leaves_a_process():
    left = subprocess.Popen(["sleep", "600"], start_new_session=True)  # it has the output of the tests
    pathlib.Path("left").write_text(str(left.pid))
    {then}
"""


def status_of(tree: Path, test: str, seconds: float = 20) -> int:
    (tree / "test_it.py").write_text(test)
    status, _ = bounded_tests.run(tree, seconds, *OPTIONS)
    return status


@pytest.mark.parametrize(("then", "status"), [("pass", 0), ("os.kill(os.getpid(), 9)", -9)], ids=["ended", "killed"])
def test_a_process_that_tests_leave_behind_ends_with_them(tmp_path, then, status):
    assert status_of(tmp_path, LEAVES_A_PROCESS.format(then=then)) == status
    left = int((tmp_path / "left").read_text())
    psutil.wait_procs([process for process in psutil.process_iter() if process.pid == left], timeout=60)
    assert not psutil.pid_exists(left) or psutil.Process(left).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("what", ["pass", "signal.pause()"], ids=["loops", "waits"])
def test_a_test_that_does_not_end_is_killed(tmp_path, what):
    assert status_of(tmp_path, f"import signal\ndef test_it():\n    while True: {what}\n", 1) == -9


def test_processes_of_other_runs_go_on(tmp_path):
    environment = {**os.environ, "BOUNDED_TESTS_TREE": str(tmp_path / "other")}
    with subprocess.Popen(["sleep", "600"], env=environment) as other:
        assert status_of(tmp_path, "def test_it(): pass") == 0
        assert other.poll() is None
        other.kill()


def test_the_output_of_the_tests_is_given_back(tmp_path):
    (tmp_path / "test_it.py").write_text("def test_it(): print('said')")
    _, output = bounded_tests.run(tmp_path, 20, *OPTIONS)
    assert "said" in output
    assert "1 passed" in output
