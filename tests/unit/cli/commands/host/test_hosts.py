"""The tables of a host: distances of a few nodes in a column, of many nodes as a matrix."""

from dataclasses import replace

import pytest
from data.field.core_classes import CORE_ULTRA_185H, I9_13900K, RK3588, RYZEN_7900X3D
from rich.console import Console
from support.hosts import plain

from pinner.cli.commands.host import hosts
from pinner.model.cpuset import CpuSet


def host(count):
    """A host with that many nodes; the last one has no table of distances."""
    top = plain(count, count)
    ids = [node.id for node in top.nodes]
    rows = ({other: 10 + 7 * abs(node - other) for other in ids} if node < count - 1 else {} for node in ids)
    nodes = tuple(replace(node, distances=row) for node, row in zip(top.nodes, rows, strict=True))
    return replace(top, nodes=nodes)


def printed(tables, width):
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        for table in tables:
            console.print(table)
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_few_nodes_have_a_column():
    lines = printed([hosts.nodes(host(4))], 120)
    assert lines[1].endswith("0:10 1:17 2:24 3:31")
    assert lines[4].endswith("no table")


def test_many_nodes_have_a_matrix():
    assert "DISTANCES" not in printed([hosts.nodes(host(5))], 120)[0]
    assert printed(hosts.distances(host(5), 120), 120) == [
        "DISTANCE   0   1   2   3   4",
        "       0  10  17  24  31  38",
        "       1  17  10  17  24  31",
        "       2  24  17  10  17  24",
        "       3  31  24  17  10  17",
        "       4   -   -   -   -   -",
    ]


@pytest.mark.parametrize("width", [40, 80, 200])
@pytest.mark.parametrize("count", [5, 16, 64])
def test_a_matrix_fits_the_width_and_has_every_distance(width, count):
    top = host(count)
    lines = printed(hosts.distances(top, width), width)
    assert max(map(len, lines)) <= width
    found = {}
    for line in lines:
        first, *others = line.split()
        if first == "DISTANCE":
            names = others
        else:
            found |= {(int(first), int(name)): cell for name, cell in zip(names, others, strict=True)}
    expected = {(a.id, b.id): str(a.distances.get(b.id, "-")) for a in top.nodes for b in top.nodes}
    assert found == expected


@pytest.mark.parametrize(
    ("top", "facts"),
    [
        (I9_13900K, {"core classes": "0-15; 16-31 (fastest first)"}),
        (CORE_ULTRA_185H, {"core classes": "0-11; 12-19; 20-21 (fastest first)"}),
        (RK3588, {"core classes": "4-7; 0-3 (fastest first)", "clusters": "0-3; 4-5; 6-7"}),
        (RYZEN_7900X3D, {"unequal L3": "96 MiB for CPUs 0-5,12-17; 32 MiB for CPUs 6-11,18-23"}),
        (plain(8), {}),
    ],
)
def test_what_makes_cores_differ_is_shown(top, facts):
    lines = printed([hosts.summary(hosts.HostNow("compute1", top, None, ()))], 160)
    rows = {line[:12].strip(): line[12:].strip() for line in lines}
    names = ("core classes", "clusters", "unequal L3")
    assert {name: rows[name] for name in names if name in rows} == facts


def test_the_two_cores_of_a_module_are_two_cores():
    top = plain(4)
    pairs = (replace(cpu, siblings=CpuSet.of([cpu.id // 2 * 2, cpu.id // 2 * 2 + 1])) for cpu in top.cpus)
    host_now = hosts.HostNow("compute1", replace(top, cpus=tuple(pairs)), None, ())
    assert "cores: 4 in 2 modules" in " ".join(printed([hosts.summary(host_now)], 160))
