"""Finds what pinner must not move, each with its reason (pinner.model.machine.process), and pinner's own processes."""

import os
import re
from collections.abc import Callable, Collection, Container, Iterable
from dataclasses import replace
from functools import cache

from pinner.host.kernel import files, procfs
from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Guest
from pinner.model.machine.process import Immovable, Process, Thread

_QEMU = re.compile(r"qemu-system-\w+|qemu-kvm|kvm")
_VHOST = re.compile(r"(?:vhost-|kvm-pit/)(\d+)", re.ASCII)
"""Kernel threads named by the process id of their QEMU (drivers/vhost, arch/x86/kvm)."""


def classify(
    processes: Iterable[Process],
    *,
    guests: Collection[int],
    own: Container[int],
    baseline: CpuSet,
    placed: Collection[CpuSet],
    online: CpuSet = CpuSet(),
    forbidden: Container[int] = (),
) -> tuple[Process, ...]:
    """``guests``: the QEMU process ids that libvirt knows (others' QEMUs are guests, too); ``baseline``: the host's
    unrestricted affinity; ``placed``: masks that pinner set; no ``online``: all; ``forbidden``: see
    ForbiddenProcesses."""
    all_processes = tuple(processes)
    # The kernel shows a mask without its offline CPUs, in the processes that inherited it, too.
    placed = {*placed, *(mask & online for mask in placed)} if online else placed
    qemus = {process.pid for process in all_processes if is_qemu(process.command)} | set(guests)

    @cache
    def restricted(affinity: CpuSet) -> bool:
        # A test for a subset would miss a thread that its owner pinned to CPUs outside the baseline (isolcpus).
        return not baseline <= affinity and affinity not in placed

    def reason_of(process: Process) -> Immovable:
        if process.pid in qemus or (process.kernel and owner_of(process.name) in qemus):
            return "guest"
        # ``own`` may read a file for each process that it is asked about, and a kernel thread is never pinner's.
        return "pinner" if not process.kernel and process.pid in own else ""

    return tuple(_classified(process, reason_of(process), restricted, forbidden) for process in all_processes)


def is_qemu(command: str) -> bool:
    executable = command.partition(" ")[0].rpartition("/")[2]
    return _QEMU.fullmatch(executable) is not None


def owner_of(name: str) -> int | None:
    match = _VHOST.fullmatch(name)
    return int(match[1]) if match else None


def _classified(
    process: Process, whole: Immovable, restricted: Callable[[CpuSet], bool], forbidden: Container[int]
) -> Process:
    def reason_of(thread: Thread) -> Immovable:
        if whole or thread.immovable_reason:
            return whole or thread.immovable_reason
        return "restricted" if not process.kernel and restricted(thread.affinity) else ""

    reasons = [reason_of(thread) for thread in process.threads]
    if not whole and all(reason == "per-cpu" for reason in reasons):
        whole = "per-cpu"
    elif not whole and process.pid in forbidden:
        # Its threads keep their own reasons: a restricted affinity keeps its CPUs, whoever may move it.
        whole = "not-permitted"
    if not whole and not any(reasons):
        return process
    threads = tuple(
        replace(thread, immovable_reason=reason) if reason != thread.immovable_reason else thread
        for thread, reason in zip(process.threads, reasons, strict=True)
    )
    return replace(process, threads=threads, immovable_reason=whole)


def with_forbidden(guest: Guest, forbidden: Container[int]) -> Guest:
    """libvirt pins the threads of QEMU, and pinner those that the kernel runs for it."""
    if not any(thread.tid in forbidden for thread in guest.vhost_threads):
        return guest
    return replace(
        guest,
        vhost_threads=tuple(
            replace(thread, immovable_reason="not-permitted") if thread.tid in forbidden else thread
            for thread in guest.vhost_threads
        ),
    )


class OwnProcesses:
    """This process, and every process of the API's user, which no other program uses."""

    def __init__(self, user: int) -> None:
        self._user = user

    def __contains__(self, pid: object) -> bool:
        return pid == os.getpid() or self._user_of(pid) == self._user

    @staticmethod
    def _user_of(pid: object) -> int | None:
        """The real user id: the owner of /proc/PID is root after setuid(2)."""
        try:
            status = files.read(f"/proc/{pid}/status")
        except OSError:
            return None
        match = re.search(rb"^Uid:\s+(\d+)", status, re.MULTILINE)
        return int(match[1]) if match else None


class ForbiddenProcesses:
    """The ids of the processes, and of the kernel threads, that the kernel does not let this process move."""

    def __init__(self) -> None:
        self._own = files.read("/proc/self/status")
        self._none = _moves_any(self._own)

    def __contains__(self, pid: object) -> bool:
        if self._none:  # it is asked about each process of each snapshot
            return False
        try:
            return not may_move(self._own, files.read(f"/proc/{pid}/status"))
        except OSError:
            return False


def may_move(ours: bytes, theirs: bytes) -> bool:
    """The kernel's rule for sched_setaffinity (check_same_owner, cap_safe_nice), from two status files: without
    CAP_SYS_NICE only processes of the same user without more capabilities. Kernel threads have all."""
    if _moves_any(ours):
        return True
    owned = procfs.users(ours)[1] in (procfs.users(theirs) or [0])[:2]
    return owned and not procfs.capabilities(theirs, b"CapPrm") & ~procfs.capabilities(ours, b"CapPrm")


def _moves_any(status: bytes) -> bool:
    """A user other than root only plans: root makes the changes."""
    return procfs.users(status)[1] != 0 or bool(procfs.capabilities(status, b"CapEff") & procfs.CAP_SYS_NICE)
