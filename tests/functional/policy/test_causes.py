"""The cause of drift of real guests and processes, as far as the host shows it."""

import os
from pathlib import Path

import private_libvirt
import pytest
from support import needs
from support.guests.real_guests import FIRST, SECOND, daemon, emulator, vcpu
from support.system.kernel import THREADS, cpuset, process

from pinner.host.kernel.kernel import cpuset_mount
from pinner.model.policy import Drift

pytestmark = pytest.mark.needs("two_cpus")


def cause_and_detail(host, target, expected):
    """The cause and detail of the target's drift."""
    actual = tuple(mask for mask in host.masks(target) if mask.cpus != expected)
    assert actual
    (found,) = host.explain_drifts((Drift(target, expected, actual, "unknown"),))
    return found.cause, found.detail


def cpuset_of(tid):
    rows = [line.split(":", 2) for line in Path(f"/proc/{tid}/cgroup").read_text().splitlines()]
    path = next((path for _, names, path in rows if "cpuset" in names.split(",")), "/")
    if path == "/":
        needs.require("guest_cgroups")
        pytest.skip("guests have no cpusets of cgroup v1 here")
    return path


@pytest.mark.fault(27)
@pytest.mark.needs("guest_cgroups")
def test_a_pin_by_another_program_through_libvirt_is_the_cause(start_guest, host, libvirtd):
    guest = start_guest()
    host.pin(emulator(guest), FIRST, persist=False)
    private_libvirt.virsh(libvirtd, "emulatorpin", guest.name, str(SECOND), "--live")
    assert cause_and_detail(host, emulator(guest), FIRST) == (
        "libvirt",
        f"another libvirt client pinned it to CPUs {SECOND}",
    )


@pytest.mark.fault(20)
def test_a_cpuset_changed_without_libvirt_is_the_cause(start_guest, host):
    guest = start_guest()
    host.pin(vcpu(guest), FIRST, persist=False)
    path = cpuset_of(guest.vcpus[0].thread.tid).lstrip("/")
    (cpuset_mount(Path("/")).folder / path / "cpuset.cpus").write_text(str(SECOND))
    assert cause_and_detail(host, vcpu(guest), FIRST) == (
        "cpuset",
        f"another program wrote CPUs {SECOND} to cpuset {path}",
    )


def test_an_affinity_set_without_libvirt_has_an_unknown_cause(start_guest, host):
    guest = start_guest()
    os.sched_setaffinity(guest.vcpus[0].thread.tid, SECOND)
    cause, detail = cause_and_detail(host, vcpu(guest), FIRST)
    assert cause == "unknown"
    assert detail.startswith("another program set its threads' affinity, for example taskset")


@pytest.mark.needs("cpusets")
def test_a_cpuset_without_the_expected_cpus_is_the_cause(host):
    with process(THREADS.format(count=2)) as pid, cpuset(str(SECOND), pid) as path:
        assert cause_and_detail(host, daemon(pid), FIRST) == (
            "cpuset",
            f"cpuset {path.lstrip('/')} allows only CPUs {SECOND}",
        )


def test_a_guest_that_has_ended_causes_no_error(start_guest, host, kill):
    guest = start_guest()
    actual = host.masks(vcpu(guest))
    kill(guest)
    (found,) = host.explain_drifts((Drift(vcpu(guest), FIRST, actual, "unknown"),))
    assert found.cause == "unknown"
