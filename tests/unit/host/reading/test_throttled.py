"""CPU limits of cgroups: made-up files of both versions, and a real limit of this machine."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.hosts import cpus, guest, process, snapshot
from support.made_up.readings import findings, host
from support.roots import write

from pinner.host.kernel import cgroups
from pinner.host.kernel.kernel import mount_of
from pinner.host.reading.sampler import take_reading
from pinner.host.reading.throttled import read_throttled
from pinner.model.guest.guest import Vcpu
from pinner.model.machine.process import CpuQuota, Thread
from pinner.model.reading import Throttled

SCOPE = "machine.slice/g1.scope"
VCPU = f"{SCOPE}/libvirt/vcpu0"
V1 = {"proc/mounts": "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\n"}
V2 = {
    "proc/mounts": "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
    "sys/fs/cgroup/cgroup.controllers": "cpuset cpu\n",
}


def v2(path, us, local=None, quota="max 100000"):
    folder = f"sys/fs/cgroup/{path}"
    found = {f"{folder}/cpu.stat": f"usage_usec 7\nnr_throttled 3\nthrottled_usec {us}\n", f"{folder}/cpu.max": quota}
    return found if local is None else found | {f"{folder}/cpu.stat.local": f"throttled_usec {local}\n"}


def v1(path, ns, quota=-1):
    folder = f"sys/fs/cgroup/cpu/{path}"
    return {
        f"{folder}/cpu.stat": f"nr_periods 9\nnr_throttled 3\nthrottled_time {ns}\n",
        f"{folder}/cpu.cfs_quota_us": f"{quota}\n",
        f"{folder}/cpu.cfs_period_us": "50000\n",
    }


def threads(*paths, rows="0::/{}\n"):
    return {f"proc/{tid}/cgroup": rows.format(path) for tid, path in enumerate(paths, 70)}


def test_cgroup_v2_counts_in_the_cgroup_that_has_the_limit(tmp_path):
    files = (
        V2 | threads(VCPU, "user.slice") | v2(SCOPE, 0) | v2("user.slice", 0) | v2("machine.slice", 0)
        | v2(VCPU, 1312, quota="10000 100000")
    )  # fmt: skip
    assert read_throttled(write(tmp_path, files), [70, 71, 72]) == (
        {VCPU: Throttled(CpuQuota(10000, 100000), 1_312_000, None)},
        {70: VCPU},
    )


def test_a_limit_above_stops_the_cgroups_below(tmp_path):
    """Since Linux 6.7, cpu.stat.local has what the limits above took."""
    files = V2 | threads(VCPU) | v2("machine.slice", 90, 0, "20000 100000") | v2(SCOPE, 0, 0) | v2(VCPU, 0, 60)
    assert read_throttled(write(tmp_path, files), [70]) == (
        {"machine.slice": Throttled(CpuQuota(20000, 100000), 90_000, 0), VCPU: Throttled(None, 0, 60_000)},
        {70: VCPU},
    )


def test_cgroup_v1(tmp_path):
    rows = "4:cpuset:/elsewhere\n3:cpu,cpuacct:/{}\n0::/other\n"
    files = V1 | threads(VCPU, rows=rows) | v1("machine.slice", 0) | v1(SCOPE, 5_000, 20_000) | v1(VCPU, 0)
    assert read_throttled(write(tmp_path, files), [70]) == (
        {SCOPE: Throttled(CpuQuota(20000, 50000), 5_000, None), VCPU: Throttled(None, 0, None)},
        {70: VCPU},
    )


def test_the_limits_of_the_services_of_the_host(tmp_path):
    files = (
        V2 | v2("system.slice", 0) | v2("system.slice/a.service", 7, 7, "1000 100000") | v2("system.slice/b.service", 0)
    )
    limited = {"system.slice/a.service": Throttled(CpuQuota(1000, 100000), 7000, 7000)}
    assert read_throttled(write(tmp_path, files), []) == (limited, {})


BELOW = ("backup@1.service", "system-deep.slice/a.scope")


def test_the_limits_of_units_in_slices_of_the_services(tmp_path):
    """What is below a service or a scope is no unit of the host."""
    folder = "system.slice/system-backup.slice"
    paths = [folder, *(f"{folder}/{name}" for name in BELOW)]
    inside = ["system.slice/docker-1.scope/system.slice/ssh.service", f"{paths[1]}/own.slice", "user.slice/u.service"]
    files = V2 | v2("system.slice", 0)
    for path in (*paths, *inside):
        files |= v2(path, 7, 7)
    assert set(read_throttled(write(tmp_path, files), [])[0]) == set(paths)


def test_units_without_end_are_not_all_searched(tmp_path, monkeypatch):
    """Those of the upper levels come first."""
    files = V2 | v2("system.slice/z.service", 7) | v2("system.slice/a.slice/a-b.slice/c.service", 7)
    root = write(tmp_path, files)
    (root / "sys/fs/cgroup/system.slice/link.slice").symlink_to(".")
    assert len(read_throttled(root, [])[0]) == 2
    monkeypatch.setattr(cgroups, "MAX_CGROUPS", 3)
    assert set(read_throttled(root, [])[0]) == {"system.slice/z.service"}


@pytest.mark.parametrize(
    "files",
    [
        {},
        V2 | threads(VCPU),
        V2 | threads(VCPU) | {f"sys/fs/cgroup/{VCPU}/cpu.stat": "throttled_usec\nthrottled_usec x\n\n"},
        V2 | threads("../../etc") | v2(VCPU, 9),
        V2 | {"proc/70/cgroup": "nonsense"},
    ],
    ids=["no cgroups", "no controller", "malformed", "outside", "no rows"],
)
def test_a_host_without_limits_has_none(tmp_path, files):
    assert read_throttled(write(tmp_path, files), [70]) == ({}, {})


@pytest.fixture
def cgroup():
    """A cgroup v1 of its own."""
    mount = mount_of(Path("/"), "cpu")
    folder = mount.folder / f"pinner-test-{os.getpid()}"
    if mount.version != "v1" or not os.access(mount.folder, os.W_OK):
        pytest.skip("cgroup v1 with the controller cpu, and root, are needed")
    (folder / "vcpu0").mkdir(parents=True)
    yield folder
    (folder / "vcpu0").rmdir()
    folder.rmdir()


@pytest.mark.parametrize("of", [".", "vcpu0"])
def test_a_real_limit_is_counted(cgroup, of):
    (cgroup / of / "cpu.cfs_quota_us").write_text("1000")
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        (cgroup / "vcpu0/tasks").write_text(str(busy.pid))
        limited = str(Path(cgroup.name, of))
        while True:
            throttled, cgroups = read_throttled(Path("/"), [busy.pid])
            # The cgroups are read one after the other, the innermost first.
            if cgroups and throttled[limited].own_ns and throttled[cgroups[busy.pid]].any_ns != 0:
                break
        assert throttled[limited].quota == CpuQuota(1000)
        assert cgroups == {busy.pid: f"{cgroup.name}/vcpu0"}
    finally:
        busy.send_signal(signal.SIGKILL)
        busy.wait()


def test_the_finding_of_a_real_limit_names_it_and_proposes_no_plan(cgroup):
    """A busy process takes the place of a guest's vCPU."""
    (cgroup / "vcpu0/cpu.cfs_quota_us").write_text("2000")
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        (cgroup / "vcpu0/tasks").write_text(str(busy.pid))
        thread = Thread(busy.pid, 7, "CPU 0/KVM", cpus("0-15"))
        vcpu = guest(1, 1, cpus("0-15"), quotas={"vcpu_quota": CpuQuota(2000)})
        vcpu = replace(vcpu, vcpus=(Vcpu(0, thread, cpus("0-15")),), pid=busy.pid)
        of_guest = replace(process(busy.pid, 100.0), threads=(thread,))
        taken = snapshot(host(), [vcpu], processes=(of_guest,))
        reading = take_reading(Path("/"), taken, 1.0, sleep=lambda _: until_stopped(busy.pid))
        (found,) = (each for each in findings(reading) if each.code == "guest-cpu-limit")
        facts = {each.name: each.value for each in found.evidence}
        assert facts["limit 1"].startswith("2000 us of each 100000 us, by libvirt's vcpu_quota")
        assert facts["by limits"] >= 5
        assert facts["by limits"] + facts["for a CPU"] == pytest.approx(facts["worst run delay"])
        assert not [remedy for remedy in found.remedies if "pinner" in remedy.line]
    finally:
        busy.send_signal(signal.SIGKILL)
        busy.wait()


def until_stopped(tid):
    """Until the limit has taken a tenth of the time and more."""

    def stopped():
        throttled, cgroups = read_throttled(Path("/"), [tid])
        return throttled[cgroups[tid]].own_ns if cgroups else 0

    begin, before = time.monotonic_ns(), stopped()
    while stopped() - before < 10**8 + (time.monotonic_ns() - begin) // 10:
        time.sleep(0.05)
