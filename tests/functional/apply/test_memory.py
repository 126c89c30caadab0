"""The memory of a real guest on one NUMA node; the lab tests move memory between nodes."""

from dataclasses import replace

import private_libvirt
import pytest
from support.guests.real_guests import FIRST, apply, change, emulator, entries, plan_of, rollback
from support.system.kernel import started

from pinner.model.change import MemoryChange, Target
from pinner.model.errors import Gone, Invalid
from pinner.model.plan.plan import GuestMemory

RESTRICTIVE = "<numatune><memory mode='restrictive' nodeset='0'/></numatune>"


def memory(guest):
    return Target("memory", guest.uuid, started(guest.pid), guest.name)


def test_migrate_memory_of_a_plan_without_memory_is_refused_before_any_change(host, journal, start_guest):
    guest = start_guest()
    with pytest.raises(Invalid, match="migrate_memory: True is not valid"):
        apply(plan_of(host, [change(host, emulator(guest), FIRST)]), host, journal, migrate_memory=True)
    assert journal.entries("run-1") == ()


def test_the_memory_of_a_former_process_is_gone(host, start_guest, libvirtd):
    guest = start_guest(persistent=True)
    assert host.memory(memory(guest)).keys() == guest.memory_per_node.keys()
    former = memory(guest)
    private_libvirt.virsh(libvirtd, "destroy", guest.name)
    with pytest.raises(Gone):
        host.memory(former)
    private_libvirt.virsh(libvirtd, "start", guest.name, "--paused")
    for call in (lambda: host.memory(former), lambda: host.move_memory(former, [1], 0)):
        with pytest.raises(Gone, match=f"guest {guest.name} memory is gone"):
            call()


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ("", ""),
        ("<numatune><memory mode='strict' nodeset='0'/></numatune>", ""),
        ("<numatune><memory mode='preferred' nodeset='0'/></numatune>", ""),
        ("<numatune><memory mode='interleave' nodeset='0'/></numatune>", ""),
        pytest.param(RESTRICTIVE, "0", marks=pytest.mark.needs("guest_cgroups")),
    ],
)
def test_only_a_restrictive_numatune_can_be_changed(libvirt, start_guest, extra, expected):
    guest = start_guest(extra=extra)
    assert libvirt.numatune(memory(guest)) == expected
    if expected:
        libvirt.set_numatune(memory(guest), "0")
        assert libvirt.numatune(memory(guest)) == "0"


@pytest.mark.needs("guest_cgroups")
def test_memory_is_moved_journaled_and_rolled_back(host, journal, start_guest):
    """The memory on node 1 is invented, as this machine may have one node; the calls, journal and undo are real."""
    guest = start_guest(extra=RESTRICTIVE)
    plan = plan_of(host, [])
    plan = replace(plan, memory=(GuestMemory(memory(guest), {1: 5}, 0, 0, 0),))
    real_memory = host.memory
    host.memory = lambda target: {**real_memory(target), 1: 4}
    assert apply(plan, host, journal, migrate_memory=True).state == "applied"
    (entry,) = journal.entries("run-1")
    assert isinstance(entry.change, MemoryChange)
    assert (entry.change.node, entry.change.numatune, entry.change.before[1]) == (0, "0", 4)
    assert {part.node for part in entry.memory} == {0, 1}
    assert rollback(host, journal).state == "rolled_back"
    assert entries(journal) == [("undone", "")]
