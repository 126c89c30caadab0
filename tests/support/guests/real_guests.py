"""Plans for real guests and processes, made by hand for two CPUs, and carried out."""

import os
import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import private_libvirt
import pytest
from support import needs
from support.guests.measured_host import wait_until
from support.system.kernel import started
from support.values import NOON, make_plan, make_run

from pinner.apply import executor
from pinner.host.kernel.kernel import cpuset_mount
from pinner.host.live import ROOT, LiveHost
from pinner.host.virt.libvirt import Libvirt
from pinner.model.change import AffinityChange, PlannedChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Guest
from pinner.model.plan.plan import Basis, Plan
from pinner.model.run.journal import Run
from pinner.store.journal.journal import StoredJournal

ONLINE = sorted(os.sched_getaffinity(0))
FIRST, SECOND = CpuSet.of(ONLINE[:1]), CpuSet.of(ONLINE[1:2])


def emulator(guest: Guest) -> Target:
    return Target("emulator", guest.uuid, None, guest.name)


def vcpu(guest: Guest, part: int = 0) -> Target:
    return Target("vcpu", guest.uuid, part, guest.name)


def iothread(guest: Guest, part: int = 1) -> Target:
    return Target("iothread", guest.uuid, part, guest.name)


def daemon(pid: int) -> Target:
    return Target("process", str(pid), started(pid), "busyd")


def change(host: LiveHost, target: Target, after: CpuSet) -> AffinityChange:
    return AffinityChange(target, host.masks(target), after, "a test")


def plan_of(host: LiveHost, changes: Iterable[PlannedChange]) -> Plan:
    return replace(make_plan(changes=tuple(changes)), basis=Basis("s", NOON, host.fingerprint()))


def whole(host: LiveHost, guest: Guest) -> list[AffinityChange]:
    """The emulator and iothreads to the first CPU, the vCPUs to the second."""
    return [
        change(host, emulator(guest), FIRST),
        *(change(host, iothread(guest, each.id), FIRST) for each in guest.iothreads),
        *(change(host, vcpu(guest, each.id), SECOND) for each in guest.vcpus),
    ]


def apply(plan: Plan, host: LiveHost, journal: StoredJournal, **run: object) -> Run:
    return executor.apply(plan, make_run(**run), host, journal, lambda: NOON, lambda *_: None)


def rollback(host: LiveHost, journal: StoredJournal, undoes: str = "run-1") -> Run:
    run = make_run(f"back-{undoes}", kind="rollback", undoes=undoes)
    return executor.rollback(run, host, journal, lambda: NOON, lambda *_: None)


def entries(journal: StoredJournal) -> list[tuple[str, str]]:
    return [(entry.state, entry.error) for entry in journal.entries("run-1")]


def expected(plan: Plan) -> dict[int, str]:
    return {thread.tid: str(change.after) for change in plan.changes for thread in change.before}


def only(found: dict[int, str], tids: Iterable[int]) -> dict[int, str]:
    """QEMU's workers come and go; these are the threads that stay."""
    return {tid: found[tid] for tid in tids if tid in found}


def cpuset_of(tid: int) -> Path:
    """The folder of a thread's cpuset, read here in its own way; skips the test where guests have none."""
    rows = [line.split(":", 2) for line in Path(f"/proc/{tid}/cgroup").read_text().splitlines()]
    mount = cpuset_mount(ROOT)
    path = next((path for _, names, path in rows if "cpuset" in names.split(",")), None)
    path = path or next(path for _, names, path in rows if not names)
    if mount.version == "none" or path == "/":
        needs.require("guest_cgroups")
        pytest.skip("guests have no cpusets here")
    return mount.folder / path.lstrip("/")


@cache
def describes_hung_guests(libvirtd: str) -> bool:
    """Whether this libvirtd tells the XML of a guest whose QEMU hangs: libvirt 9 does, libvirt 11 does not."""
    name = f"describes-{os.getpid()}"
    private_libvirt.start_guest(libvirtd, private_libvirt.guest_xml(name), paused=True)
    (guest,) = (each for each in Libvirt(libvirtd).guests(ROOT) if each.name == name)
    try:
        with hung(libvirtd, guest):
            asked = ["virsh", "-c", libvirtd, "dumpxml", name]
            subprocess.run(asked, stdout=subprocess.DEVNULL, check=True, timeout=10)
    except subprocess.TimeoutExpired:
        return False
    finally:
        private_libvirt.virsh(libvirtd, "destroy", name)
    return True


def settle(host: LiveHost) -> None:
    """Wait until libvirt has answered every call about a guest, also the overdue ones."""
    calls = host.guests._daemon._calls
    wait_until(lambda: calls.overdue is None, 60, pause=0.02)


@contextmanager
def hung(libvirtd: str, guest: Guest) -> Iterator[subprocess.Popen[bytes]]:
    """A guest whose QEMU does not answer, and a job that waits for its answer; in the end it goes on."""
    os.kill(guest.pid, signal.SIGSTOP)
    command = ["virsh", "-c", libvirtd, "qemu-monitor-command", guest.name, '{"execute": "query-status"}']
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as asking:
        try:
            wait_until(
                lambda: private_libvirt.virsh(libvirtd, "domcontrol", guest.name).startswith("occupied"), 60, pause=0.02
            )
            assert asking.poll() is None
            yield asking
        finally:
            os.kill(guest.pid, signal.SIGCONT)
