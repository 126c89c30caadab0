import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from benchmarks.live.reconcile_latency import answered
from benchmarks.report.bounded import measure

ROW = 'import json, os, subprocess, sys, time\nprint(json.dumps({"what": "first"}), file=open(sys.argv[2], "a"))\n'

TESTS = Path(__file__).parents[2]


@pytest.fixture
def script(tmp_path):
    def write(rest):
        file = tmp_path / "benchmark.py"
        file.write_text(ROW + textwrap.dedent(rest))
        return file

    return write


def test_a_benchmark_that_ends_has_its_rows_and_no_problem(script):
    found = measure("x", 30, script=script(""))
    assert (found.rows, found.problem) == (({"what": "first"},), "")


def test_a_benchmark_that_hangs_is_ended_and_keeps_its_rows(script):
    began = time.monotonic()
    found = measure("x", 1, script=script("time.sleep(600)"))
    assert found.rows == ({"what": "first"},)
    assert found.problem == "ended after 1 s, because it had not ended by itself"
    assert time.monotonic() - began < 300, "it ended by itself"


def test_a_benchmark_that_ignores_its_end_is_killed_with_what_it_has_started(script, tmp_path):
    child = tmp_path / "child"
    found = measure(
        "x",
        1.5,
        script=script(
            f"""
            import signal
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            sleeper = subprocess.Popen(["sleep", "600"])
            open({str(child)!r}, "w").write(str(sleeper.pid))
            time.sleep(600)
            """
        ),
        grace=0.5,
    )
    assert "ended after" in found.problem
    stat = f"/proc/{child.read_text()}/stat"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and _runs(stat):
        time.sleep(0.05)
    assert not _runs(stat)


STARTS = """
import os, signal, subprocess, sys
from pathlib import Path
tests, script, child = sys.argv[1:]
sys.path.append(tests)
from benchmarks.report import bounded
start = subprocess.Popen
def started(*arguments, **more):
    process = start(*arguments, **more)
    Path(child).write_text(str(process.pid))
    os.kill(os.getpid(), signal.SIGTERM)
    return process
subprocess.Popen = started
bounded.end_on_sigterm()
bounded.measure("x", 600, script=Path(script))
"""


def test_a_sigterm_while_a_benchmark_starts_ends_it(script, tmp_path):
    child = tmp_path / "child"
    command = [sys.executable, "-c", STARTS, TESTS, script("time.sleep(600)"), child]
    assert subprocess.run(command, check=False).returncode == 143
    assert not _runs(f"/proc/{child.read_text()}/stat")


def test_a_benchmark_that_fails_keeps_its_rows_and_half_a_row_is_left_out(script):
    found = measure("x", 30, script=script('open(sys.argv[2], "a").write(\'{"what"\'); sys.exit(3)'))
    assert (found.rows, found.problem) == (({"what": "first"},), "failed with status 3")


def test_a_benchmark_gets_the_environment_of_its_caller_and_more(script):
    rest = 'print(json.dumps({"what": os.environ["ASKED"]}), file=open(sys.argv[2], "a"))'
    assert measure("x", 30, {"ASKED": "yes"}, script=script(rest)).rows[1] == {"what": "yes"}


def test_a_subject_that_does_not_answer_is_left_with_what_was_measured():
    def latencies():
        yield 0.1
        yield 0.2
        time.sleep(600)

    assert answered(latencies(), 0.3) == ([0.1, 0.2], "the other restarts are left out: 0.3 s are over")


def test_a_subject_that_answers_is_measured_to_its_end():
    assert answered(iter([0.1, 0.2]), 60) == ([0.1, 0.2], "")


def _runs(stat):
    try:
        with open(stat) as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
