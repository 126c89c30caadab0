"""Drawings of all captured machines: hosts with sparse or interleaved CPU numbers, nodes without memory, offline CPUs,
and four threads per core."""

import json

from support.machines import EACH, root_of


def letter(cpu):
    """What the drawing shows for a CPU without guests: x is offline, I is isolated."""
    return "x" if not cpu["online"] else "I" if cpu["isolated"] else "."


@EACH
def test_every_cpu_is_drawn_once_within_the_width(cli, name, monkeypatch):
    root = root_of(name)
    document = json.loads(cli("topology", "--root", root, "--json").out)
    expected = sorted(f"{cpu['id']}{letter(cpu)}" for cpu in document["topology"]["cpus"])
    for columns in (60, 80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        result = cli("topology", "--root", root)
        assert result.status == 0
        assert max(len(line) for line in result.out.splitlines()) <= columns
        words = (word.strip("[]") for word in result.out.split())
        assert sorted(word for word in words if word[:-1].isdigit() and word[-1] in ".xI") == expected
    assert cli("inventory", "--root", root).status == 0
