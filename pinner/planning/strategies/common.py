"""The parts of an answer that strategies have in common."""

from collections.abc import Iterable, Iterator, Mapping

from pinner.model.cpuset import CpuSet
from pinner.model.guest import Guest
from pinner.model.plan import Roles, Wanted
from pinner.planning.context import Context, guest_targets, plugged, vcpu_target

_BESIDE = {
    "emulator": "QEMU's own threads run off the vCPUs' CPUs",
    "vhost": "a kernel thread of the guest's devices runs beside its emulator",
    "iothread": "QEMU's I/O work runs beside the emulator, off the vCPUs' CPUs",
}
"""Why each kind runs on the emulator's CPUs. An iothread polls and can use a whole CPU: on a vCPU's CPU it would stall
the guest."""


def place_host_processes(context: Context, roles: Roles) -> Iterator[Wanted]:
    """Each process that moves, onto all housekeeping CPUs."""
    for move in context.moving:
        yield Wanted(move.target, roles.housekeeping, move.reason)


def place_emulator(guest: Guest, cpus: CpuSet) -> Iterator[Wanted]:
    """A guest's emulator, vhost and kvm threads and iothreads, onto ``cpus``."""
    for target, _ in guest_targets(guest):
        if target.kind in _BESIDE:
            yield Wanted(target, cpus, _BESIDE[target.kind])


def float_over(guest: Guest, cpus: CpuSet, reason: str) -> Iterator[Wanted]:
    """Each plugged-in vCPU, onto all of ``cpus``."""
    for vcpu in plugged(guest):
        yield Wanted(vcpu_target(guest, vcpu), cpus, reason)


def pin(guest: Guest, cpus: Mapping[int, int], reason: str) -> Iterator[Wanted]:
    """Each vCPU, onto one CPU; ``cpus`` has the CPU by the vCPU's number."""
    for vcpu, cpu in cpus.items():
        yield Wanted(vcpu_target(guest, vcpu), CpuSet.of([cpu]), reason)


def floating_warnings(context: Context, roles: Roles) -> Iterable[str]:
    """Warnings about CPUs that several threads are to share."""
    shared = roles.cpus & context.snapshot.topology.nohz_full
    if shared:
        yield f"CPUs {shared} are nohz_full, but several threads share each of them: their timer tick does not stop"
