import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

from benchmarks import run
from benchmarks.report import history

RUN = Path(__file__).parents[2] / "benchmarks/run.py"


def ran(*arguments):
    return subprocess.run([sys.executable, str(RUN), *arguments], capture_output=True, text=True, timeout=120)


def test_help_is_printed_and_nothing_is_measured():
    done = ran("--help")
    assert done.returncode == 0
    assert "usage:" in done.stdout
    assert "measuring" not in done.stderr


def test_an_unknown_benchmark_is_named_with_the_known_ones():
    done = ran("no-such")
    assert done.returncode == 2
    assert "unknown benchmark no-such; choose from scan, plan, comparison" in done.stderr


def test_every_file_with_rows_is_a_benchmark_of_the_table():
    files = [file for file in RUN.parent.rglob("*.py") if re.search(r"^def rows\(", file.read_text(), re.MULTILINE)]
    assert {file.stem: file.parent.name for file in files} == run.BENCHMARKS


def test_a_run_that_is_ended_prints_a_table_and_is_in_the_history(tmp_path):
    file = tmp_path / "folder/history.jsonl"
    done = ran("plan", "--bound", "0.05", "--history", str(file))
    assert "| plan | ended after 0.05 s" in done.stdout
    (run,) = [json.loads(line) for line in file.read_text().splitlines()]
    assert run["rows"] == [{"what": "plan", "ours": "ended after 0.05 s, because it had not ended by itself"}]
    assert len(run["load_before"]) == 3
    assert run["machine"]["cpus"] == os.cpu_count()


def test_a_run_that_gets_a_sigterm_ends_its_benchmark(tmp_path):
    command = [sys.executable, str(RUN), "comparison", "--history", str(tmp_path / "history.jsonl")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr.readline() == "measuring comparison ...\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        deadline = time.monotonic() + 60
        while not (found := children.read_text().split()) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.terminate()
        assert process.wait(60) == 143
    assert not Path(f"/proc/{found[0]}").exists()


def test_each_run_adds_a_line_with_its_revision(tmp_path):
    file = tmp_path / "history.jsonl"
    for number in range(2):
        history.append(file, (0.1, 0.2, 0.3), [{"what": str(number)}])
    runs = [json.loads(line) for line in file.read_text().splitlines()]
    assert [run["rows"] for run in runs] == [[{"what": "0"}], [{"what": "1"}]]
    assert runs[0]["revision"] == history.revision()
