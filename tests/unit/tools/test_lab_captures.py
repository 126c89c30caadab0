"""The captured machines of the tests show the lab hosts that `make captures` saved."""

from datetime import UTC, datetime

import pytest
from lab import topology
from lab.captures import CAPTURES
from support.machines import root_of

from pinner.host.inventory import take_snapshot
from pinner.model.cpuset import CpuSet


@pytest.fixture(scope="module", params=CAPTURES, ids=lambda capture: capture.name)
def captured(request):
    """A capture and its snapshot."""
    root = root_of(request.param.name)
    now = datetime(2026, 11, 22, tzinfo=UTC)
    return request.param, take_snapshot(root, "lab1", None, sample_seconds=0, now=lambda: now)


def test_a_capture_has_the_topology_of_its_host(captured):
    capture, found = captured
    shape = topology.load(capture.topology)
    assert [node.cpus for node in found.topology.nodes] == [node.cpus - found.topology.offline for node in shape.nodes]
    assert [tuple(node.distances.values()) for node in found.topology.nodes] == list(shape.distances)
    assert [cpu.socket for cpu in found.topology.cpus if cpu.online] == [
        position.socket for cpu, position in enumerate(shape.positions) if cpu not in found.topology.offline
    ]


def test_a_capture_shows_how_its_host_was_prepared(captured):
    capture, found = captured
    isolated = {"partition": "12-15", "isolated-boot": "4-7,12-15"}.get(capture.name, "")
    assert found.topology.isolated == CpuSet.parse(isolated)
    assert found.topology.offline == CpuSet.parse("3,12-13" if capture.name == "offline" else "")
    pages = {(node.id, each.size_kib): each.total for node in found.topology.nodes for each in node.hugepages}
    assert {key: total for key, total in pages.items() if total} == (
        {(1, 2048): 8} if capture.name in ("partition", "offline") else {}
    )


def test_a_capture_names_no_program_except_qemu(captured):
    _, found = captured
    assert [each.name for each in found.processes if each.command and not each.name.startswith("process-")] == [
        "qemu-system-x86"
    ]
    assert not [word for word in found.topology.kernel.command_line.split() if word.startswith("root=/")]
