"""A guest's memory is moved to the node of its vCPUs; the kernel's counters are compared before and after."""

import json
import time
from contextlib import contextmanager

import pytest
from private_libvirt import guest_xml
from support.system.lab import apply, boot_disk, inventory, masks, plan, rollback, server, wrong

MEMORY_MIB = 448
"""Much more than the memory of QEMU's code and libraries, which may be on either node."""
NOISE_KIB = 8 * 1024
"""The memory that QEMU may allocate or free between two readings; on a slow host 3.5 MiB were seen."""
LIBRARIES_KIB = 32 * 1024
"""The memory of QEMU's code and libraries that may be on another node than the guest's memory."""

_NUMA_MAPS = """\
import collections, json, subprocess
pid = subprocess.run(["pgrep", "-f", "guest=delta"], capture_output=True, text=True, check=True).stdout.split()[0]
found = collections.Counter()
for line in open(f"/proc/{pid}/numa_maps"):
    words = line.split()
    size = [int(word[18:]) for word in words if word.startswith("kernelpagesize_kB=")]
    for word in words:
        node, _, pages = word.partition("=")
        if node[0] == "N" and node[1:].isdecimal():
            found[node[1:]] += int(pages) * size[0]
print(json.dumps(found))
"""


def numa_maps(host):
    """The KiB of the guest's QEMU on each node, read without pinner."""
    return {int(node): kib for node, kib in json.loads(host.run("python3 -", stdin=_NUMA_MAPS).out).items()}


def same(one, other, noise=NOISE_KIB):
    return all(abs(one.get(node, 0) - other.get(node, 0)) <= noise for node in {*one, *other})


def halted(host):
    """Whether the guest's first CPU has reached the end of STOPPED, which the firmware loads at 0x7c00."""
    return "IP=00007c02" in host.run("virsh qemu-monitor-command delta --hmp info registers").out


def wait_for_stable_memory(host):
    """Wait until QEMU's memory does not change: it grows while the firmware runs, which is slow and has pauses."""
    for _ in range(60):
        found = numa_maps(host)
        time.sleep(3)
        if halted(host) and same(found, numa_maps(host), 64):
            return
    pytest.fail(f"QEMU's memory keeps changing, or its guest does not halt: {numa_maps(host)}")


@contextmanager
def guest(host, mode, node):
    """Guest delta, which gets all its memory from ``node`` at its start."""
    disk = boot_disk(host)
    memory = (
        "<memoryBacking><allocation mode='immediate'/></memoryBacking>"
        f"<numatune><memory mode='{mode}' nodeset='{node}'/></numatune>"
    )
    xml = guest_xml("delta", vcpus=4, memory_mib=MEMORY_MIB, extra=memory, devices=disk)
    host.run("virsh -q create /dev/stdin", stdin=xml)
    try:
        wait_for_stable_memory(host)
        yield
    finally:
        host.run("virsh -q destroy delta")


@pytest.fixture(scope="module")
def two_socket(lab_host):
    return lab_host("two-socket")


@pytest.mark.fault(31)
@pytest.mark.parametrize("mode", ["preferred", "restrictive"])
def test_memory_is_moved_to_the_vcpus_and_rolled_back(two_socket, mode):
    home, away = inventory(two_socket).topology.nodes
    with guest(two_socket, mode, away.id):
        before, threads = numa_maps(two_socket), masks(two_socket)
        assert before[away.id] > MEMORY_MIB * 1024
        # pinner would place the guest on the node of its memory, so the request gives that node to emulators.
        new_plan = plan(two_socket, "numa-local", emulator=str(away.cpus))
        (planned,) = new_plan.memory
        assert planned.home == home.id
        assert same(planned.per_node, before)
        assert same({home.id: planned.remote_kib}, {home.id: before[away.id]})
        run, state = apply(two_socket, new_plan, migrate_memory=True)
        assert state == "applied"
        after = numa_maps(two_socket)
        assert after[home.id] >= 0.95 * sum(after.values())
        entry = server(two_socket).entries(run)[-1]
        assert entry.change.before == {part.node: part.before_kib for part in entry.memory if part.before_kib}
        assert same(entry.change.before, before)
        assert same({part.node: part.stayed_kib for part in entry.memory}, after)
        assert all(part.moved_kib + part.stayed_kib == part.before_kib for part in entry.memory)
        if mode == "restrictive":
            assert f"numa_nodeset   : {home.id}\n" in two_socket.run("virsh numatune delta").out
        assert rollback(two_socket, run) == "rolled_back"
        assert same(numa_maps(two_socket), before, LIBRARIES_KIB)
        assert wrong(threads, masks(two_socket)) == []
        assert f"numa_nodeset   : {away.id}\n" in two_socket.run("virsh numatune delta").out


@pytest.mark.fault(31)
def test_strict_memory_stays_with_its_vcpus_on_its_node(two_socket):
    """libvirt cannot change strict memory while the guest runs, and QEMU's memory is bound to the node."""
    _, away = inventory(two_socket).topology.nodes
    with guest(two_socket, "strict", away.id):
        before, threads = numa_maps(two_socket), masks(two_socket)
        elsewhere = plan(two_socket, "numa-local", emulator=str(away.cpus))
        assert [left.target.name for left in elsewhere.unplaced] == ["delta"]
        assert [memory.home for memory in elsewhere.memory] == [None]
        new_plan = plan(two_socket, "numa-local")
        assert all(want.cpus <= away.cpus for want in new_plan.wanted if want.target.name == "delta")
        run, state = apply(two_socket, new_plan)
        assert state == "applied"
        assert same(numa_maps(two_socket), before)
        assert rollback(two_socket, run) == "rolled_back"
        assert wrong(threads, masks(two_socket)) == []
