"""What a plan says about real-time threads. pinner moves no real-time process, see processes.moving."""

from collections.abc import Iterator, Mapping

from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.plan.plan import Roles
from pinner.model.plan.request import Request
from pinner.model.processes.process import Thread
from pinner.model.snapshot import Snapshot


def warnings(snapshot: Snapshot, request: Request, roles: Roles, planned: Mapping[int, CpuSet]) -> Iterator[str]:
    """``planned`` has the new affinities by thread id."""
    yield from _processes(snapshot, request, roles)
    for guest in snapshot.guests:
        yield from _guest(guest, planned)


def _processes(snapshot: Snapshot, request: Request, roles: Roles) -> Iterator[str]:
    for process in snapshot.processes:
        if process.load > request.busy_threshold and process.immovable_reason in ("", "restricted"):
            threads = [thread for thread in process.threads if thread.realtime and thread.immovable_reason != "per-cpu"]
            if shared := union(thread.affinity for thread in threads) & roles.cpus:
                load = sum(thread.load for thread in threads)
                yield (
                    f"process {process.name} ({process.pid}) has real-time threads ({_policies(threads)}) that use "
                    f"{load:.1f} % of one CPU and may stop other threads on CPUs {shared}; pinner does not move them: "
                    "restrict them to CPUs of their own, and plans leave out these CPUs"
                )


def _guest(guest: Guest, planned: Mapping[int, CpuSet]) -> Iterator[str]:
    vcpus = [vcpu.thread for vcpu in guest.vcpus if vcpu.thread and vcpu.thread.realtime]
    if not vcpus:
        return
    masks = {thread.tid: planned.get(thread.tid, thread.affinity) for thread in vcpus}
    emulator = union(planned.get(thread.tid, thread.affinity) for thread in guest.emulator.threads)
    if both := union(masks.values()) & emulator:
        yield (
            f"guest {guest.name}: its real-time vCPUs ({_policies(vcpus)}) share CPUs {both} with its emulator "
            "threads: QEMU may get no CPU there, and the guest then does not boot or answer; give the emulator "
            "threads CPUs of their own"
        )
    if floating := union(mask for mask in masks.values() if len(mask) > 1):
        yield (
            f"guest {guest.name}: its real-time vCPUs ({_policies(vcpus)}) float over CPUs {floating} and stop other "
            "threads there; the strategy isolated gives each vCPU a CPU of its own"
        )


def _policies(threads: list[Thread]) -> str:
    return ", ".join(sorted({thread.realtime for thread in threads}))
