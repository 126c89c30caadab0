"""A real guest's memory; where it moves is seen in the lab, for this needs no second node."""

from dataclasses import replace

import private_libvirt
import pytest
from support.kernel import started
from support.real_guests import FIRST, apply, change, emulator, entries, plan_of, rollback

from pinner.model.change import MemoryChange, Target
from pinner.model.errors import Gone, Invalid
from pinner.model.plan import GuestMemory

RESTRICTIVE = "<numatune><memory mode='restrictive' nodeset='0'/></numatune>"


def memory(guest):
    return Target("memory", guest.uuid, started(guest.pid), guest.name)


def test_no_node_of_its_own_is_refused_before_anything_is_touched(host, journal, start_guest):
    guest = start_guest()
    with pytest.raises(Invalid, match="migrate_memory: True is not valid"):
        apply(plan_of(host, [change(host, emulator(guest), FIRST)]), host, journal, migrate_memory=True)
    assert journal.entries("run-1") == ()


def test_it_is_read_of_the_process_that_is_meant(host, start_guest, libvirtd):
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
        (RESTRICTIVE, "0"),
    ],
)
def test_a_numatune_that_libvirt_may_change(libvirt, start_guest, extra, expected):
    guest = start_guest(extra=extra)
    assert libvirt.numatune(memory(guest)) == expected
    if expected:
        libvirt.set_numatune(memory(guest), "0")
        assert libvirt.numatune(memory(guest)) == "0"


def test_a_move_to_where_it_lies_goes_the_whole_way(host, journal, start_guest):
    """What is elsewhere is made up (this machine may have one node); the calls, the journal and the undo are real."""
    guest = start_guest(extra=RESTRICTIVE)
    made = plan_of(host, [])
    made = replace(made, memory=(GuestMemory(memory(guest), {1: 5}, 0, 0, 0),))
    told = host.memory
    host.memory = lambda target: {**told(target), 1: 4}
    assert apply(made, host, journal, migrate_memory=True).state == "applied"
    (entry,) = journal.entries("run-1")
    assert isinstance(entry.change, MemoryChange)
    assert (entry.change.node, entry.change.numatune, entry.change.before[1]) == (0, "0", 4)
    assert {part.node for part in entry.memory} == {0, 1}
    assert rollback(host, journal).state == "rolled_back"
    assert entries(journal) == [("undone", "")]
