"""Guests that work: where the kernel let their vCPUs run, and how much."""

import re
import time
from contextlib import contextmanager

import pytest
from support.lab import GUESTS, apply, guests, inventory, plan, rollback

from pinner.model.cpuset import CpuSet

WORKING = (
    bytes.fromhex(
        "fa31c08ed8"  # cli, ds = 0
        "c7060080ebfe"  # at 0x8000: jump to itself
        "6667c7050003e0fe00450c00"  # the local APIC sends INIT to all others
        "31c9e2fe"  # a while
        "6667c7050003e0fe08460c00"  # and has them start at 0x8000
        "ebfe"  # jump to itself
    ).ljust(510, b"\0")
    + b"\x55\xaa"
)
"""A guest's whole system: every vCPU works without end."""
GUEST = "alpha"
TRACE = "/sys/kernel/tracing"
SPIN = "while True:\n    pass\n"


@pytest.fixture
def host(lab_host, request):
    """A host with one guest, paused: it would leave little of this machine to pinner."""
    host = lab_host(request.param)
    with guests(host, {GUEST: GUESTS[GUEST]}, WORKING):
        host.run(f"virsh -q suspend {GUEST}")
        yield host


@contextmanager
def working(host):
    """The guest works meanwhile."""
    host.run(f"virsh -q resume {GUEST}")
    try:
        yield
    finally:
        host.run(f"virsh -q suspend {GUEST}")


def vcpus(host):
    """Thread ids of the guest's vCPUs."""
    (guest,) = inventory(host).guests
    return [vcpu.thread.tid for vcpu in guest.vcpus]


def run_ns(host, tids):
    """When it is, and how long each thread has run, in nanoseconds of the host's own clock."""
    script = (
        f"import time\nprint(time.monotonic_ns(), *(open(f'/proc/{{t}}/schedstat').read().split()[0] for t in {tids}))"
    )
    now, *ran = map(int, host.run("python3 -", stdin=script).out.split())
    return now, ran


def shares(host, tids, seconds):
    """The share of a CPU that each thread had."""
    began, before = run_ns(host, tids)
    time.sleep(seconds)
    ended, after = run_ns(host, tids)
    return [(late - early) / (ended - began) for early, late in zip(before, after, strict=True)]


def switched_on(host, tids, seconds):
    """The CPUs on which the kernel switched to or from the threads, by its own trace."""
    host.run(f"cd {TRACE} && echo {' '.join(map(str, tids))} > set_event_pid && echo > trace")
    host.run(f"cd {TRACE} && echo 1 > events/sched/sched_switch/enable")
    time.sleep(seconds)
    host.run(f"cd {TRACE} && echo 0 > events/sched/sched_switch/enable")
    lines = host.run(f"cd {TRACE} && cat trace && echo > set_event_pid").out.splitlines()
    wanted = re.compile(rf"\[(\d+)\].* sched_switch: .*(?:prev|next)_pid=(?:{'|'.join(map(str, tids))}) ")
    return CpuSet.of(int(match[1]) for line in lines if (match := wanted.search(line)))


@pytest.mark.parametrize("host", ["two-socket"], indirect=True)
def test_numa_local_keeps_a_working_guest_on_its_node(host):
    made = plan(host, "numa-local")
    run, state = apply(host, made)
    assert state == "applied"
    (pool,) = {want.cpus for want in made.wanted if want.target.kind == "vcpu"}
    assert any(pool <= node.cpus for node in host.topology.nodes)
    tids = vcpus(host)
    _, before = run_ns(host, tids)
    with working(host):
        used = switched_on(host, tids, 60)
    _, after = run_ns(host, tids)
    assert all(late - early > 30e9 for early, late in zip(before, after, strict=True))
    assert used
    assert used <= pool
    assert rollback(host, run) == "rolled_back"


@pytest.mark.parametrize("host", ["isolated-boot"], indirect=True)
def test_isolated_vcpus_have_a_cpu_each_while_the_others_are_flooded(host):
    made = plan(host, "isolated")
    run, state = apply(host, made)
    assert state == "applied"
    tids = vcpus(host)
    flood = range(len(made.roles.housekeeping | made.roles.emulator))
    try:
        for number in flood:
            host.run(f"systemd-run -q --unit=flood{number} python3 -c '{SPIN}'")
        with working(host):
            assert min(shares(host, tids, 20)) > 0.95
    finally:
        host.run("systemctl stop 'flood*'")
    assert rollback(host, run) == "rolled_back"
