import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pinner.host.hardware import libnuma
from pinner.host.hardware.sysfs import read_topology
from pinner.model.cpuset import CpuSet


@pytest.fixture
def here():
    return read_topology(Path("/"))


def test_the_live_machine_agrees(here):
    assert libnuma.disagreements(here) == ()


def test_each_difference_is_a_warning(here):
    cpu, *others = here.cpus
    node, *nodes = here.nodes
    assert (cpu.node, node.id) == (0, 0)
    wrong = replace(
        here,
        cpus=(replace(cpu, node=1), *others),
        nodes=(replace(node, memory_kib=1, distances={0: 11}), *nodes),
    )
    assert libnuma.disagreements(wrong) == (
        f"CPU {cpu.id}: libnuma reports node 0; sysfs reports node 1",
        f"node 0: libnuma reports {node.memory_kib} KiB of memory; sysfs reports 1 KiB",
        "distance from node 0 to 0: libnuma reports 10; sysfs reports 11",
    )


def test_a_node_that_libnuma_does_not_know(here):
    unknown = replace(here.nodes[0], id=63, cpus=CpuSet(), memory_kib=5, distances={63: 10})
    warnings = libnuma.disagreements(replace(here, nodes=(*here.nodes, unknown)))
    assert warnings[0].startswith("node 63: libnuma reports ")
    assert warnings[-1].startswith("distance from node 63 to 63")


def test_a_machine_without_libnuma_gives_one_warning(tmp_path):
    """A new interpreter whose loader finds no library: the import of py-libnuma fails."""
    script = (
        "import ctypes.util, pathlib\n"
        "ctypes.util.find_library = lambda name: None\n"
        "from pinner.host.hardware import libnuma, sysfs\n"
        "print(libnuma.disagreements(sysfs.read_topology(pathlib.Path('/'))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    assert "libnuma cannot be used" in done.stdout
