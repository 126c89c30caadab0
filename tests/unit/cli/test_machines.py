"""Drawings of all captured machines: hosts with sparse or interleaved CPU numbers, nodes without memory, offline CPUs,
and four threads per core."""

import json
import os
import subprocess
from pathlib import Path

import pytest

MACHINES = os.environ.get("PINNER_MACHINES")
ARCHIVES = sorted(Path(MACHINES or "/nonexistent").glob("*.tar.bz2"))

pytestmark = pytest.mark.skipif(not MACHINES, reason="PINNER_MACHINES does not name the folder of captured machines")


@pytest.mark.parametrize("archive", ARCHIVES, ids=[archive.name for archive in ARCHIVES])
def test_every_cpu_is_drawn_once_within_the_width(cli, tmp_path, archive, monkeypatch):
    subprocess.run(["tar", "-xf", archive, "-C", tmp_path], check=True)
    root = next(path.parent for path in tmp_path.glob("*/sys"))
    document = json.loads(cli("topology", "--root", root, "--json").out)
    expected = sorted(f"{cpu['id']}{'.' if cpu['online'] else 'x'}" for cpu in document["topology"]["cpus"])
    for columns in (60, 80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        result = cli("topology", "--root", root)
        assert result.status == 0
        assert max(len(line) for line in result.out.splitlines()) <= columns
        words = (word.strip("[]") for word in result.out.split())
        assert sorted(word for word in words if word[:-1].isdigit() and word[-1] in ".x") == expected
    assert cli("inventory", "--root", root).status == 0
