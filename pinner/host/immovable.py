"""Who may be moved: gives every process and thread its hold (see pinner.model.process). Pure."""

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import cache

from pinner.model.cpuset import CpuSet
from pinner.model.process import Immovable, Process, Thread

_QEMU = re.compile(r"qemu-system-\w+|qemu-kvm|kvm")
_VHOST = re.compile(r"(?:vhost-|kvm-pit/)(\d+)", re.ASCII)
"""Kernel threads named after the QEMU process that they work for (drivers/vhost, arch/x86/kvm)."""


def classify(
    processes: Iterable[Process],
    *,
    guests: Collection[int],
    own: Collection[int],
    baseline: CpuSet,
    placed: Collection[CpuSet],
) -> tuple[Process, ...]:
    """The processes with their holds.

    ``guests`` are the QEMU process ids that libvirt knows, ``own`` pinner's process ids, ``baseline`` the affinity that
    nobody narrowed and ``placed`` the masks that pinner gave. A QEMU unknown to libvirt is a guest all the same.
    """
    found = tuple(processes)
    qemus = {process.pid for process in found if is_qemu(process.command)} | set(guests)

    @cache
    def restricted(affinity: CpuSet) -> bool:
        # Not "a subset of": a thread pinned to CPUs that the baseline lacks (isolcpus) was pinned on purpose, too.
        return not baseline <= affinity and affinity not in placed

    def reason_of(process: Process) -> Immovable:
        if process.pid in qemus or (process.kernel and owner_of(process.name) in qemus):
            return "guest"
        return "pinner" if process.pid in own else ""

    return tuple(_classified(process, reason_of(process), restricted) for process in found)


def is_qemu(command: str) -> bool:
    """Whether a command line's executable is QEMU's, by its name."""
    executable = command.partition(" ")[0].rpartition("/")[2]
    return _QEMU.fullmatch(executable) is not None


def owner_of(name: str) -> int | None:
    """The process id of the QEMU that a kernel thread of this name works for."""
    vhost = _VHOST.fullmatch(name)
    return int(vhost[1]) if vhost else None


def _classified(process: Process, whole: Immovable, restricted: Callable[[CpuSet], bool]) -> Process:
    def reason_of(thread: Thread) -> Immovable:
        if whole or thread.immovable_reason:
            return whole or thread.immovable_reason
        return "restricted" if not process.kernel and restricted(thread.affinity) else ""

    holds = [reason_of(thread) for thread in process.threads]
    if not any(holds):
        return process
    threads = tuple(
        replace(thread, immovable_reason=immovable_reason) if immovable_reason != thread.immovable_reason else thread
        for thread, immovable_reason in zip(process.threads, holds, strict=True)
    )
    stuck: Immovable = "per-cpu" if all(immovable_reason == "per-cpu" for immovable_reason in holds) else ""
    return replace(process, threads=threads, immovable_reason=whole or stuck)
