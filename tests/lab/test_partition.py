"""The live form of `isolated`: made on a running host, agreed by the kernel, and taken back to the last mask."""

import json
import shlex

import pytest
from support.lab import GUESTS, apply, daemon, guests, inventory, masks, plan, rollback, wrong

from pinner.model.cpuset import CpuSet

CGROUPS = "/sys/fs/cgroup"
SPIN = """\
import threading, time
def work():
    end = time.monotonic() + 1000
    while time.monotonic() < end:
        pass
for _ in range(6):
    threading.Thread(target=work, daemon=True).start()
threading.Event().wait()
"""
_SETTINGS = """\
import glob, json
names = ("cpuset.cpus", "cpuset.cpus.effective", "cpuset.cpus.partition")
found = {}
for folder in ["/sys/fs/cgroup/machine.slice", *glob.glob("/sys/fs/cgroup/machine.slice/*.scope")]:
    found[folder] = [open(f"{folder}/{name}").read().strip() for name in names]
found["unbound"] = [open("/sys/devices/virtual/workqueue/cpumask").read().strip()]
print(json.dumps(found))
"""
_RAN = """\
import glob, sys, time
used = set()
for _ in range(60):
    for path in glob.glob("/proc/%s/task/*/stat" % sys.argv[1]):
        used.add(int(open(path).read().rpartition(")")[2].split()[36]))
    time.sleep(0.05)
print(",".join(map(str, sorted(used))))
"""


@pytest.fixture(scope="module")
def plain(lab_host):
    host = lab_host("two-socket")
    with guests(host), daemon(host, "busy"), daemon(host, "owned", cpu=1):
        yield host


def settings(host):
    """The kernel's word on the guests' cgroups and on unbound work."""
    return json.loads(host.run("python3 -", stdin=_SETTINGS).out)


def ran_on(host, unit):
    """The CPUs on which a unit's threads were seen (field 39 of /proc/TID/stat)."""
    pid = host.run(f"systemctl show -p MainPID --value {unit}").out.strip()
    return CpuSet.parse(host.run(f"python3 - {pid}", stdin=_RAN).out)


@pytest.mark.fault(5)
def test_a_live_partition_is_made_and_taken_back(plain):
    before, cgroups = masks(plain), settings(plain)
    made = plan(plain, "isolated", isolation="live")
    assert made.blocked == ""
    assert made.unplaced == ()
    run, state = apply(plain, made)
    assert state == "applied"
    try:
        isolated = the_kernel_agrees(plain, made)
        nothing_else_runs_there(plain, isolated)
        plain.run("systemctl daemon-reload")
        assert the_kernel_agrees(plain, made) == isolated
        assert [c for c in plan(plain, "isolated", isolation="live").changes if c.target.kind != "process"] == []
    finally:
        assert rollback(plain, run) == "rolled_back"
    # The kernel takes no empty list back where threads are; all CPUs are as little of a limit.
    everything = str(inventory(plain).topology.online)
    assert settings(plain) == {
        path: values if path == "unbound" else [everything, *values[1:]] for path, values in cgroups.items()
    }
    assert wrong(before, masks(plain)) == []


def the_kernel_agrees(host, made):
    """Each vCPU alone on a CPU of its guest's partition; the CPUs of all the partitions."""
    found = settings(host)
    slice_cpus = CpuSet.parse(found[f"{CGROUPS}/machine.slice"][0])
    assert found[f"{CGROUPS}/machine.slice"][2] == "root"
    seats, isolated = [], CpuSet()
    for guest in inventory(host).guests:
        cpus, effective, kind = found[f"{CGROUPS}/{guest.cgroups[-1].path}"]
        assert (kind, effective) == ("isolated", cpus)
        own = [vcpu.thread.affinity for vcpu in guest.vcpus if vcpu.thread]
        assert all(len(seat) == 1 and seat <= CpuSet.parse(cpus) for seat in own)
        seats += [cpu for seat in own for cpu in seat]
        isolated |= CpuSet.parse(cpus)
    assert len(seats) == len(set(seats)) == sum(GUESTS.values())
    assert isolated <= slice_cpus
    assert not made.roles.housekeeping & slice_cpus
    unbound = int(found["unbound"][0].replace(",", ""), 16)
    assert not [cpu for cpu in isolated if unbound >> cpu & 1]
    return isolated


def nothing_else_runs_there(host, isolated):
    """Six spinning threads on four CPUs, and none of them ever reaches a partition's CPUs."""
    host.run(f"systemd-run -q --unit=spin python3 -c {shlex.quote(SPIN)}")
    try:
        used = ran_on(host, "spin")
    finally:
        host.run("systemctl stop spin")
    assert used
    assert not used & isolated
