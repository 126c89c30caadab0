"""The stages of the documented case (docs/strategies.md) on a host of 16 CPUs: applied, read from the kernel, undone.

The stages by hand name the case's own CPUs, as far as this host has them; the schemes have half as many as on 32 CPUs.
Scheme 3 is in test_strategies.
"""

import re
from contextlib import ExitStack

import pytest
from support.system.lab import apply, daemon, guests, masks, pinner, plan, rollback, wrong

VCPUS = {"small": 2, "wide": 8}
DAEMONS = [f"busy{number}" for number in range(6)]
ALL = "0-15"
_OWNERS = """\
for guest in small wide; do
    for task in /proc/$(cat /run/libvirt/qemu/$guest.pid)/task/*; do echo ${task##*/} $guest; done
done
for task in $(cat /sys/fs/cgroup/system.slice/busy[0-5].service/cgroup.threads); do echo $task daemons; done
"""


def whole(guest, vcpus, others):
    """The CPUs of each part of a guest, without vhost threads: the lab's guests have no network."""
    parts = {f"{guest} emulator": others, f"{guest} iothread": others}
    return parts | {f"{guest} vCPU {number}": vcpus for number in range(VCPUS[guest])}


UNPLACED = {"daemons": ALL} | whole("small", ALL, ALL) | whole("wide", ALL, ALL)
FOURTH = {"small emulator": "5", "small vCPU 0": "6", "small vCPU 1": "7"}
FIFTH = {"daemons": "0,2,4,6"} | whole("wide", "8,10,12,14", "8,10,12,14")
FIRST_SCHEME = {"daemons": "0-1"} | whole("small", "4-15", "2-3") | whole("wide", "4-15", "2-3")
SECOND_SCHEME = {"daemons": "0-1"} | whole("small", "4-7", "2-3") | whole("wide", "8-15", "2-3")
"""Only node 1 has CPUs for eight vCPUs, and then none is free there for the other guest."""
BY_HAND = {
    "4": ("small --emulator 5 --vcpu 0=6 --vcpu 1=7", FOURTH),
    "5": ("wide --all 8,10,12,14 --cpus 0,2,4,6 {processes}", FIFTH),
}
"""What each stage gives to `pinner place`, and the CPUs of the parts that it places."""
SCHEMES = {"shared-pool": FIRST_SCHEME, "numa-local": SECOND_SCHEME}


@pytest.fixture(scope="module")
def host(lab_host):
    host = lab_host("two-socket")
    with guests(host, VCPUS), ExitStack() as undo:
        for unit in DAEMONS:
            undo.enter_context(daemon(host, unit))
        yield host


def owners(host):
    """The guest of each of its threads, by thread id; the threads of the six daemons."""
    return {int(tid): owner for tid, owner in map(str.split, host.run(_OWNERS).out.splitlines())}


def part(owner, thread):
    """The part of the guest that has a thread of this name."""
    if owner == "daemons":
        return owner
    if vcpu := re.match(r"CPU (\d+)/", thread):
        return f"{owner} vCPU {vcpu[1]}"
    # The emulator has the monitor's "IO mon_iothread".
    return f"{owner} {'iothread' if thread.startswith('IO iothread') else 'emulator'}"


def by_part(host, threads):
    """The different masks of the threads of each part."""
    owner, found = owners(host), {}
    for (tid, _), (name, mask) in threads.items():
        if tid in owner:
            found.setdefault(part(owner[tid], name), set()).add(str(mask))
    return {name: " and ".join(sorted(each)) for name, each in found.items()}


def check_and_undo(host, apply_stage, places, housekeeping=""):
    """``apply_stage`` returns its run; only other processes that are busy get the CPUs of ``housekeeping``."""
    before = masks(host)
    assert by_part(host, before) == UNPLACED
    run = apply_stage()
    after = masks(host)
    assert by_part(host, after) == UNPLACED | places
    placed = owners(host)
    others = {key: thread for key, thread in before.items() if key[0] not in placed and key in after}
    moved = {str(after[key][1]) for key, (_, mask) in others.items() if after[key][1] != mask}
    assert moved <= {housekeeping}, wrong(others, after)
    assert rollback(host, run) == "rolled_back"
    last = masks(host)
    assert wrong(before, last) == []
    assert by_part(host, last) == UNPLACED


@pytest.mark.parametrize("stage", BY_HAND, ids=[f"two-socket stage {stage}" for stage in BY_HAND])
def test_a_stage_by_hand_is_applied_and_undone(host, stage):
    command, places = BY_HAND[stage]

    def place():
        pids = host.run("cat /sys/fs/cgroup/system.slice/busy[0-5].service/cgroup.procs").out.split()
        arguments = command.format(processes=" ".join(f"--process {pid}" for pid in pids)).split()
        result = pinner(host, "place", *arguments, "--sample-seconds", "2", "--worse", "--yes")
        return re.search(r"to undo: pinner rollback (\S+)", result.err)[1]

    check_and_undo(host, place, places)


@pytest.mark.parametrize("strategy", SCHEMES, ids=[f"two-socket {strategy}" for strategy in SCHEMES])
def test_a_scheme_with_its_own_sets_is_applied_and_undone(host, strategy):
    def apply_scheme():
        run, state = apply(host, plan(host, strategy, housekeeping="0-1", emulator="2-3"))
        assert state == "applied"
        return run

    check_and_undo(host, apply_scheme, SCHEMES[strategy], housekeeping="0-1")
