"""The live form of `isolated`: applied on a running host, checked in the kernel, and rolled back to every mask."""

import json
import shlex

import pytest
from support.system.lab import apply, daemon, guests, inventory, masks, plan, rollback, wrong

from pinner.model.cpuset import CpuSet

CGROUPS = "/sys/fs/cgroup"
VCPUS = {"alpha": 3, "beta": 2, "gamma": 1}
"""As many as fit: beside the process on CPU 1, housekeeping takes half a core of node 0 and another whole one."""
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
def two_socket(lab_host):
    host = lab_host("two-socket")
    with guests(host, VCPUS), daemon(host, "busy"), daemon(host, "owned", cpu=1):
        yield host


def settings(host):
    """The kernel's settings of the guests' cgroups and of unbound work queues."""
    return json.loads(host.run("python3 -", stdin=_SETTINGS).out)


def ran_on(host, unit):
    """The CPUs that a unit's threads were using when sampled (field 39 of /proc/TID/stat)."""
    pid = host.run(f"systemctl show -p MainPID --value {unit}").out.strip()
    return CpuSet.parse(host.run(f"python3 - {pid}", stdin=_RAN).out)


@pytest.mark.fault(5)
def test_a_live_partition_is_applied_and_rolled_back(two_socket):
    before, cgroups = masks(two_socket), settings(two_socket)
    new_plan = plan(two_socket, "isolated", isolation="live")
    assert new_plan.blocked == ""
    assert new_plan.unplaced == ()
    run, state = apply(two_socket, new_plan)
    assert state == "applied"
    try:
        isolated = check_partitions(two_socket, new_plan)
        check_no_other_threads(two_socket, isolated)
        two_socket.run("systemctl daemon-reload")
        assert check_partitions(two_socket, new_plan) == isolated
        assert [c for c in plan(two_socket, "isolated", isolation="live").changes if c.target.kind != "process"] == []
    finally:
        assert rollback(two_socket, run) == "rolled_back"
    # The kernel refuses an empty list for a cgroup with threads; a list of all CPUs has the same effect.
    everything = str(inventory(two_socket).topology.online)
    assert settings(two_socket) == {
        path: values if path == "unbound" else [everything, *values[1:]] for path, values in cgroups.items()
    }
    assert wrong(before, masks(two_socket)) == []


def check_partitions(host, new_plan):
    """Check that each vCPU has a CPU of its guest's partition to itself; returns the CPUs of all partitions."""
    found = settings(host)
    slice_cpus = CpuSet.parse(found[f"{CGROUPS}/machine.slice"][0])
    assert found[f"{CGROUPS}/machine.slice"][2] == "root"
    vcpu_cpus, isolated = [], CpuSet()
    for guest in inventory(host).guests:
        cpus, effective, kind = found[f"{CGROUPS}/{guest.cgroups[-1].path}"]
        assert (kind, effective) == ("isolated", cpus)
        own = [vcpu.thread.affinity for vcpu in guest.vcpus if vcpu.thread]
        assert all(len(mask) == 1 and mask <= CpuSet.parse(cpus) for mask in own)
        vcpu_cpus += [cpu for mask in own for cpu in mask]
        isolated |= CpuSet.parse(cpus)
    assert len(vcpu_cpus) == len(set(vcpu_cpus)) == sum(VCPUS.values())
    assert isolated <= slice_cpus
    assert not new_plan.roles.housekeeping & slice_cpus
    unbound = int(found["unbound"][0].replace(",", ""), 16)
    assert not [cpu for cpu in isolated if unbound >> cpu & 1]
    return isolated


def check_no_other_threads(host, isolated):
    """Check that none of six spinning threads, more than there are other CPUs, ever runs on a partition's CPUs."""
    host.run(f"systemd-run -q --unit=spin python3 -c {shlex.quote(SPIN)}")
    try:
        used = ran_on(host, "spin")
    finally:
        host.run("systemctl stop spin")
    assert used
    assert not used & isolated
