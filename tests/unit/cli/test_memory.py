"""Guests' memory in a plan, in the question before an apply, and in the result of a run."""

import io
import json
import re
from dataclasses import replace

import pytest
from support.hosts import guest, plain, snapshot
from support.values import make_entries

from pinner import codec
from pinner.model.change import MemoryChange, Target
from pinner.model.run.journal import memory_moved
from pinner.model.snapshot import Snapshot

MIB = 1024


@pytest.fixture
def file(tmp_path):
    """A file with the snapshot of a host with two nodes."""
    host = plain(32, 2)
    seen = snapshot(host, [guest(1, 4, host.online, memory={0: 100 * MIB, 1: 412 * MIB})])
    path = tmp_path / "host.json"
    path.write_bytes(codec.dump(seen))
    assert codec.load(Snapshot, path.read_bytes()) == seen
    return path


@pytest.mark.parametrize(
    ("strategy", "remote", "home"),
    [("numa-local", "100.0 MiB", "node 1"), ("shared-pool", "256.0 MiB", "none")],
)
def test_a_plan_shows_remote_memory(cli, file, strategy, remote, home):
    lines = cli("plan", "--snapshot", file, "--strategy", strategy).out.splitlines()
    row = lines[next(n for n, line in enumerate(lines) if line.startswith("MEMORY OF")) + 1]
    assert re.split(" {2,}", row.strip()) == ["g1", "node 0: 100.0 MiB, node 1: 412.0 MiB", "256.0 MiB", remote, home]


def test_a_plan_in_json(cli, file):
    (memory,) = json.loads(cli("plan", "--json", "--snapshot", file, "--strategy", "numa-local").out)["memory"]
    assert memory["per_node"] == {"0": 100 * MIB, "1": 412 * MIB}
    assert (memory["home"], memory["remote_kib"], memory["remote_now_kib"]) == (1, 100 * MIB, 256 * MIB)


@pytest.fixture
def moving(pinner):
    """The in-memory service, where the last change of each run moves memory."""
    finish = pinner.finish

    def end(run):
        before = {0: 3 * MIB, 1: 500 * MIB}
        change = MemoryChange(Target("memory", "u", 7, "g1"), before, 0, "", "500.0 MiB are remote")
        *others, last = make_entries(run)
        moved = replace(last, change=change, memory=memory_moved(before, {0: 502 * MIB, 1: MIB}))
        pinner.journal[run] = (*others, moved)
        finish(run)

    pinner.finish = end
    return pinner


def test_a_run_shows_the_memory_that_moved_and_that_stayed(moving, cli):
    result = cli("apply", "--migrate-memory", "--yes")
    assert moving.run_list["run-1"].migrate_memory
    assert (
        "[3/3] done   guest g1 memory  node 0: 3.0 MiB, node 1: 500.0 MiB -> node 0: "
        "node 1: 499.0 MiB moved, 1.0 MiB stayed"
    ) in result.err.splitlines()
    rows = [line.split("  ") for line in result.out.splitlines() if line.startswith("g1")]
    assert [[cell.strip() for cell in row if cell.strip()] for row in rows] == [
        ["g1", "0", "3.0 MiB", "0 KiB", "502.0 MiB"],
        ["g1", "1", "500.0 MiB", "499.0 MiB", "1.0 MiB"],
    ]
    assert "node 0: 3.0 MiB" in cli("run", "show", "run-1").out


def test_a_run_without_migrate_memory_shows_no_memory(applied, cli):
    assert not applied.run_list["run-1"].migrate_memory
    assert "MEMORY OF" not in cli("run", "show", "run-1").out


def test_the_question_names_the_memory(pinner, cli, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    asked = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    monkeypatch.setattr("sys.stderr", asked)
    assert cli("apply", "--migrate-memory").status == 0
    assert "nothing was changed" in asked.getvalue()
    assert "Make these 2 changes and move guests' memory? [y/N]" in asked.getvalue()
