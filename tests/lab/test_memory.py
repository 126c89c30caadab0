"""Guests' memory moved to the node of their vCPUs, counted by the kernel before and after."""

import json
import time
from contextlib import contextmanager

import pytest
from private_libvirt import guest_xml
from support.lab import apply, boot_disk, inventory, masks, plan, rollback, served, wrong

MEMORY_MIB = 448
"""Much more than QEMU's own code and libraries, which lie on either node."""
NOISE_KIB = 2048
"""What QEMU takes or gives back between two readings."""
LIBRARIES_KIB = 32 * 1024
"""What QEMU's code and libraries may hold on a node where the guest's memory does not lie."""

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
    """KiB by node of the guest's QEMU, without pinner."""
    return {int(node): kib for node, kib in json.loads(host.run("python3 -", stdin=_NUMA_MAPS).out).items()}


def same(one, other, noise=NOISE_KIB):
    return all(abs(one.get(node, 0) - other.get(node, 0)) <= noise for node in {*one, *other})


def halted(host):
    """Whether the guest's first CPU has come to the end of STOPPED, which the firmware loads at 0x7c00."""
    return "IP=00007c02" in host.run("virsh qemu-monitor-command delta --hmp info registers").out


def settle(host):
    """QEMU takes memory while the firmware runs, which is slow in an emulated host, and waits now and then."""
    for _ in range(60):
        found = numa_maps(host)
        time.sleep(3)
        if halted(host) and same(found, numa_maps(host), 64):
            return
    pytest.fail(f"QEMU's memory keeps changing, or its guest does not halt: {numa_maps(host)}")


@contextmanager
def guest(host, mode, node):
    """Guest delta, all of whose memory is taken from ``node`` at its start."""
    disk = boot_disk(host)
    memory = (
        "<memoryBacking><allocation mode='immediate'/></memoryBacking>"
        f"<numatune><memory mode='{mode}' nodeset='{node}'/></numatune>"
    )
    xml = guest_xml("delta", vcpus=4, memory_mib=MEMORY_MIB, extra=memory, devices=disk)
    host.run("virsh -q create /dev/stdin", stdin=xml)
    try:
        settle(host)
        yield
    finally:
        host.run("virsh -q destroy delta")


@pytest.fixture(scope="module")
def two(lab_host):
    return lab_host("two-socket")


@pytest.mark.fault(31)
@pytest.mark.parametrize("mode", ["preferred", "strict", "restrictive"])
def test_memory_follows_the_vcpus_and_goes_back(two, mode):
    home, away = inventory(two).topology.nodes
    with guest(two, mode, away.id):
        before, threads = numa_maps(two), masks(two)
        assert before[away.id] > MEMORY_MIB * 1024
        # The guest would stay where its memory is; so all of that node is taken for emulators.
        made = plan(two, "numa-local", emulator=str(away.cpus))
        (planned,) = made.memory
        assert planned.home == home.id
        assert same(planned.per_node, before)
        assert same({home.id: planned.remote_kib}, {home.id: before[away.id]})
        run, state = apply(two, made, migrate_memory=True)
        assert state == "applied"
        after = numa_maps(two)
        assert after[home.id] >= 0.95 * sum(after.values())
        entry = served(two).entries(run)[-1]
        assert entry.change.before == {part.node: part.before_kib for part in entry.memory if part.before_kib}
        assert same(entry.change.before, before)
        assert same({part.node: part.stayed_kib for part in entry.memory}, after)
        assert all(part.moved_kib + part.stayed_kib == part.before_kib for part in entry.memory)
        if mode == "restrictive":
            assert f"numa_nodeset   : {home.id}\n" in two.run("virsh numatune delta").out
        assert rollback(two, run) == "rolled_back"
        assert same(numa_maps(two), before, LIBRARIES_KIB)
        assert wrong(threads, masks(two)) == []
        assert f"numa_nodeset   : {away.id}\n" in two.run("virsh numatune delta").out
