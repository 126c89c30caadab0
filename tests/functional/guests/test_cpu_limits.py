"""Guests in a partition of libvirt (<resource>) that leaves out a CPU, on cgroup v1: pinner stays inside it, and an
error names it. The lab has slices of systemd on cgroup v2."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from support.guests.real_guests import FIRST, SECOND, apply, cpuset_of, emulator, only, rollback, vcpu
from support.system.kernel import THREADS, masks, process
from support.values import NOON

from pinner.host.inventory import LIVE, take_snapshot
from pinner.host.kernel.kernel import cpuset_mount
from pinner.model.errors import ApplyFailed, StalePlan
from pinner.model.machine.process import CpuLimit
from pinner.model.plan.request import Request
from pinner.planning import planner

pytestmark = pytest.mark.needs("exactly_two_cpus", "guest_cgroups")

NAME = f"limited-{os.getpid()}"
PARTITION = f"{NAME}.partition"
"""libvirt's name of the folder (https://libvirt.org/cgroups.html)."""


@pytest.fixture
def partition() -> Iterator[Path]:
    """A libvirt partition with the first CPU only; its cpuset."""
    mount = cpuset_mount(Path("/"))
    if mount.version != "v1":
        pytest.skip("the cpuset controller is not of cgroup v1")
    rows = (line.split() for line in Path("/proc/mounts").read_text().splitlines())
    made = [Path(row[1]) / PARTITION for row in rows if row[2] in ("cgroup", "cgroup2")]
    for folder in made:
        folder.mkdir(exist_ok=True)
    cpuset = mount.folder / PARTITION
    (cpuset / "cpuset.mems").write_text((mount.folder / "cpuset.mems").read_text())
    (cpuset / "cpuset.cpus").write_text(str(FIRST))
    yield cpuset
    for folder in made:
        for below in (*sorted(folder.rglob("*/"), reverse=True), folder):
            with suppress(OSError):
                below.rmdir()


@pytest.fixture
def limited(partition, start_guest, libvirt, virsh):
    guest = start_guest(extra=f"<resource><partition>/{NAME}</partition></resource>")
    cpuset_of(guest.pid)
    yield guest
    virsh("destroy", guest.name)  # the partition can be removed only without guests


@pytest.fixture
def busy() -> Iterator[int]:
    with process(THREADS.format(count=2)) as pid:
        yield pid


def a_plan(libvirt, guest, busy):
    """A plan for this guest and the process ``busy``."""
    taken = take_snapshot(LIVE, "here", libvirt, sample_seconds=0, now=lambda: NOON)
    return planner.plan(taken, "s", Request(guests=(guest.name,), processes=(str(busy),)))


def test_a_plan_stays_in_the_partition_and_is_undone(limited, busy, libvirt, host, journal):
    """The guest's threads have one CPU, and keep it: only the process moves."""
    assert limited.cpu_limits == (CpuLimit(PARTITION, FIRST),)
    before = masks(limited.pid) | masks(busy)
    made = a_plan(libvirt, limited, busy)
    assert (made.roles.housekeeping, made.roles.emulator, made.roles.vcpu) == (SECOND, FIRST, FIRST)
    of_guest = [want for want in made.wanted if want.target.kind != "process"]
    assert {want.cpus for want in of_guest} == {FIRST}
    assert all(f"cgroup {PARTITION}" in want.reason for want in of_guest)
    assert apply(made, host, journal).state == "applied"
    assert set(masks(busy).values()) == {str(SECOND)}
    assert rollback(host, journal).state == "rolled_back"
    now = masks(limited.pid) | masks(busy)
    assert now == only(before, now)


@pytest.mark.parametrize("target", [emulator, vcpu], ids=["emulator", "vcpu"])
def test_a_pin_outside_the_partition_is_refused_with_its_name_and_cpus(limited, host, target):
    before = masks(limited.pid)
    with pytest.raises(ApplyFailed, match=rf"cgroup {PARTITION} allows CPUs {FIRST}$"):
        host.pin(target(limited), SECOND, persist=False)
    assert masks(limited.pid) == before


def test_a_partition_that_was_widened_after_the_plan_makes_it_stale(limited, partition, busy, libvirt, host, journal):
    made = a_plan(libvirt, limited, busy)
    (partition / "cpuset.cpus").write_text("0-1")
    with pytest.raises(StalePlan, match=f"cgroup {PARTITION} leaves out no CPU, no longer {FIRST}"):
        apply(made, host, journal)
