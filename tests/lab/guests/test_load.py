"""Guests under load: the CPUs that their vCPUs used, and the CPU time that they got."""

import re
import time
from contextlib import contextmanager

import pytest
from support.system.lab import GUESTS, apply, guests, inventory, name, plan, rollback, server

from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid

WORKING = (
    bytes.fromhex(
        "fa31c08ed8"  # cli, ds = 0
        "c7060080ebfe"  # at 0x8000: jump to itself
        "6667c7050003e0fe00450c00"  # the local APIC sends INIT to all others
        "31c9e2fe"  # waits
        "6667c7050003e0fe08460c00"  # and starts them at 0x8000
        "ebfe"  # jump to itself
    ).ljust(510, b"\0")
    + b"\x55\xaa"
)
"""The whole system of a guest: every vCPU works without end."""
GUEST = "alpha"
TRACE = "/sys/kernel/tracing"
LIMITS = {
    "20000 us of each 100000 us, by libvirt's vcpu_quota": (
        f"virsh -q schedinfo {GUEST} --live vcpu_quota=20000",
        f"virsh -q schedinfo {GUEST} --live vcpu_quota=-1",
    ),
    "80000 us of each 100000 us, by systemd's CPUQuota of machine.slice": (
        "systemctl set-property --runtime machine.slice CPUQuota=80%",
        "systemctl set-property --runtime machine.slice CPUQuota=",
    ),
}
"""What the finding says, with the commands that set and lift the limit: a fifth of a CPU for each vCPU."""
SPIN = "while True:\n    pass\n"


@pytest.fixture
def host(lab_host, request):
    """A host with one paused guest; a running one would use most of this machine's CPU time."""
    host = lab_host(request.param)
    with guests(host, {GUEST: GUESTS[GUEST]}, WORKING):
        host.run(f"virsh -q suspend {GUEST}")
        yield host


@contextmanager
def working(host, tids):
    """The guest works with every vCPU: the context begins after its firmware, which uses only one."""
    host.run(f"virsh -q resume {GUEST}")
    try:
        deadline = time.monotonic() + 120
        while min(shares(host, tids, 1)) < 0.2:
            assert time.monotonic() < deadline
        yield
    finally:
        host.run(f"virsh -q suspend {GUEST}")


def vcpus(host):
    """The thread ids of the guest's vCPUs."""
    (guest,) = inventory(host).guests
    return [vcpu.thread.tid for vcpu in guest.vcpus]


def cpu_time(host, tids):
    """The seconds that each thread has run, and the time of the measurement by the host's clock.

    The source is stat and not schedstat, which the kernel updates only once a second for a CPU without a tick.
    """
    script = (
        "import os, time\n"
        "def ran(tid):\n"
        "    fields = open(f'/proc/{tid}/stat').read().rpartition(')')[2].split()\n"
        "    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')\n"
        f"print(*map(ran, {tids}), time.monotonic())"
    )
    *ran, at = map(float, host.run("python3 -", stdin=script).out.split())
    return ran, at


def shares(host, tids, seconds):
    """The share of a CPU that each thread got within these seconds."""
    before, began = cpu_time(host, tids)
    time.sleep(seconds)
    after, ended = cpu_time(host, tids)
    return [(late - early) / (ended - began) for early, late in zip(before, after, strict=True)]


def switched_on(host, tids, seconds):
    """The CPUs on which the kernel switched to or from the threads, read from its trace."""
    host.run(f"cd {TRACE} && echo {' '.join(map(str, tids))} > set_event_pid && echo > trace")
    host.run(f"cd {TRACE} && echo 1 > events/sched/sched_switch/enable")
    time.sleep(seconds)
    host.run(f"cd {TRACE} && echo 0 > events/sched/sched_switch/enable")
    lines = host.run(f"cd {TRACE} && cat trace && echo > set_event_pid").out.splitlines()
    wanted = re.compile(rf"\[(\d+)\].* sched_switch: .*(?:prev|next)_pid=(?:{'|'.join(map(str, tids))}) ")
    return CpuSet.of(int(match[1]) for line in lines if (match := wanted.search(line)))


@pytest.mark.parametrize("host", ["two-socket"], indirect=True)
def test_numa_local_keeps_a_working_guest_on_its_node(host):
    new_plan = plan(host, "numa-local")
    run, state = apply(host, new_plan)
    assert state == "applied"
    (pool,) = {want.cpus for want in new_plan.wanted if want.target.kind == "vcpu"}
    assert any(pool <= node.cpus for node in host.topology.nodes)
    tids = vcpus(host)
    with working(host, tids):
        before, _ = cpu_time(host, tids)
        used = switched_on(host, tids, 60)
        after, _ = cpu_time(host, tids)
    assert all(late - early > 10 for early, late in zip(before, after, strict=True))
    assert used
    assert used <= pool
    assert rollback(host, run) == "rolled_back"


@pytest.mark.parametrize("limit", LIMITS, ids=["libvirt", "systemd"])
@pytest.mark.parametrize("host", ["two-socket"], indirect=True)
def test_a_cpu_limit_is_named_with_its_owner_and_no_pin_is_proposed(host, limit):
    """On cgroup v2, where the kernel counts in the cgroup that has the limit."""
    set_limit, lift_limit = LIMITS[limit]
    with working(host, vcpus(host)):
        host.run(set_limit)
        try:
            found = {each.code: each for each in server(host).findings(name(host), 10).findings}
        finally:
            host.run(lift_limit)
    facts = {each.name: each.value for each in found["guest-cpu-limit"].evidence}
    assert facts["limit 1"] == limit
    assert facts["by limits"] > 50
    assert not [each for each in found["guest-cpu-limit"].remedies if "pin" in each.line]
    # An emulated host is late itself by some per cent; with the time of the limit, the finding would be critical.
    assert "vcpu-run-delay" not in found or found["vcpu-run-delay"].severity == "warning", facts


@pytest.mark.parametrize(
    ("host", "isolation"),
    [("isolated-boot", "boot"), ("two-socket", "live")],
    indirect=["host"],
    ids=["isolated-boot", "two-socket live"],
)
def test_isolated_vcpus_have_a_cpu_each_while_housekeeping_is_overloaded(host, isolation):
    new_plan = plan(host, "isolated", isolation=isolation)
    run, state = apply(host, new_plan)
    assert state == "applied"
    tids = vcpus(host)
    assert len(tids) == GUESTS[GUEST] == 4
    flood = range(2 * len(new_plan.roles.housekeeping))
    try:
        for number in flood:
            unit = f"--unit=flood{number} -p CPUAffinity={new_plan.roles.housekeeping}"
            host.run(f"systemd-run -q {unit} python3 -c '{SPIN}'")
        with working(host, tids):
            got = shares(host, tids, 20)
        assert min(got) > 0.95, got
        own = next(want.cpus for want in new_plan.wanted if want.target.kind == "vcpu")
        with pytest.raises(Invalid, match="isolated"):
            plan(host, emulator=str(own))
    finally:
        host.run("systemctl stop 'flood*'")
        assert rollback(host, run) == "rolled_back"
