"""migrate_pages on real processes; most tests work on a machine with one node."""

import ctypes
import os
import subprocess
from pathlib import Path

import pytest
from support.system.kernel import process

from pinner.host.hardware.sysfs import read_topology
from pinner.host.kernel import memory
from pinner.host.processes import qemu
from pinner.model.errors import ApplyFailed, Gone, NotPermitted

NODES = [node.id for node in read_topology(Path("/")).nodes]
ALLOCATED = "pages = bytearray(32 << 20); print(len(pages), flush=True); import time; time.sleep(60)"


def test_memory_that_is_already_on_the_node_stays_there():
    with process(ALLOCATED) as pid:
        before = qemu.memory_per_node(Path("/"), pid)
        memory.migrate(pid, [max(NODES) + 1], NODES[0])
        assert qemu.memory_per_node(Path("/"), pid) == before
        assert sum(before.values()) > 32 << 10


@pytest.mark.needs("move_memory")
@pytest.mark.skipif(len(NODES) < 2, reason="needs two NUMA nodes; the lab has them")
def test_memory_moves_to_another_node():
    with process(ALLOCATED) as pid:
        memory.migrate(pid, NODES[1:], NODES[0])
        assert qemu.memory_per_node(Path("/"), pid)[NODES[0]] > 32 << 10


def test_no_call_without_source_nodes():
    memory.migrate(2**22, [], NODES[0])


@pytest.mark.needs("move_memory")
@pytest.mark.parametrize("absent", [max(NODES) + 1, 63, 64, 900])
def test_the_kernel_refuses_an_absent_node(absent):
    error = f"the kernel does not move the pages to node {absent}"
    with process(ALLOCATED) as pid, pytest.raises(ApplyFailed, match=error):
        memory.migrate(pid, [NODES[0]], absent)


def test_a_process_that_has_ended_is_gone():
    with process(ALLOCATED) as pid:
        pass
    with pytest.raises(Gone):
        memory.migrate(pid, [NODES[0]], NODES[0])


@pytest.mark.needs("root")
def test_another_user_is_not_permitted():
    """In a child process, because a process that gives up root cannot become root again."""
    with process(ALLOCATED) as pid:
        child = os.fork()
        if not child:
            os.setgid(65534)
            os.setuid(65534)
            try:
                memory.migrate(pid, [NODES[0]], NODES[0])
            except NotPermitted:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize(
    ("nodes", "words"), [([0], [1]), ([1, 3], [10]), ([63], [1 << 63]), ([64], [0, 1]), ([0, 130], [1, 0, 4])]
)
def test_node_masks_of_any_width(nodes, words):
    bits = 8 * ctypes.sizeof(ctypes.c_ulong) * len(words)
    assert list(memory._mask(nodes, bits)) == words


def test_the_error_on_a_host_without_libnuma(monkeypatch):
    def fail(name, **_):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(memory.ctypes, "CDLL", fail)
    with pytest.raises(ApplyFailed, match="libnuma cannot be loaded: libnuma"):
        memory.migrate(os.getpid(), [NODES[0]], NODES[0])


def test_memory_per_node_agrees_with_numastat():
    """numastat (numactl) is an independent program."""
    with process(ALLOCATED) as pid:
        report = subprocess.run(["numastat", "-p", str(pid)], capture_output=True, text=True, check=True).stdout
        total = next(line for line in report.splitlines() if line.startswith("Total")).split()[1:]
        ours = qemu.memory_per_node(Path("/"), pid)
        assert [float(mib) for mib in total[:-1]] == pytest.approx([ours.get(node, 0) / 1024 for node in NODES], abs=1)
