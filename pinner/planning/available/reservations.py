"""CPUs of vCPUs that a plan does not move, and whether the isolated CPUs that it hands out are still free: another plan
may have been applied since."""

from collections.abc import Container, Iterator
from dataclasses import dataclass

from pinner.model.change import AffinityChange, StateChange, TargetKey
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import StalePlan
from pinner.model.kinds import PartitionState
from pinner.model.plan.plan import Plan
from pinner.model.snapshot import Snapshot, restricted


def require_free(plan: Plan, snapshot: Snapshot) -> None:
    """Raises StalePlan where the plan gives a vCPU an isolated CPU to which another guest's vCPU is pinned, unless that
    guest moves, or was there when the plan was made (``contested``). With smt ``isolate``, whole cores count."""
    handed_out = _handed_out(plan, snapshot)
    known = {left.target.owner for left in (*plan.unplaced, *plan.skipped)}
    moved = tuple(
        f"isolated CPUs {cpus} are in use by guest {use.name}, which was pinned there since"
        for use in _in_use(plan, snapshot)
        if (cpus := use.cpus & handed_out - (plan.contested if use.guest in known else CpuSet()))
    )
    if moved:
        raise StalePlan(plan.id, moved)


def contested(plan: Plan, snapshot: Snapshot) -> CpuSet:
    """Isolated CPUs that a plan hands out although a vCPU is pinned there, of a guest that is unplaced or in
    backoff."""
    used = union(use.cpus for use in _in_use(plan, snapshot))
    # Before its first plan a host has no pinned vCPU, and after it a plan hands out nothing.
    return used & _handed_out(plan, snapshot) if used else used


@dataclass(frozen=True, slots=True)
class _Use:
    guest: str
    name: str
    cpus: CpuSet


def _handed_out(plan: Plan, snapshot: Snapshot) -> CpuSet:
    """CPUs that the vCPU does not have yet."""
    isolated = snapshot.topology.isolated | union(
        change.after.cpus
        for change in plan.changes
        if isinstance(change, StateChange)
        and isinstance(change.after, PartitionState)
        and change.after.kind == "isolated"
    )
    if not isolated:
        return isolated
    now: dict[tuple[str, int | None], CpuSet] = {
        (guest.uuid, vcpu): cpus for guest in snapshot.guests for vcpu, cpus in guest.vcpu_affinities.items()
    }
    cpus = isolated & union(
        change.after
        for change in _of_vcpus(plan)
        if len(change.after) == 1 and now.get((change.target.owner, change.target.part)) != change.after
    )
    if plan.request.smt == "isolate":
        return cpus | union(cpu.siblings for cpu in snapshot.topology.cpus if cpu.id in cpus)
    return cpus


def _in_use(plan: Plan, snapshot: Snapshot) -> Iterator[_Use]:
    moved = {(change.target.owner, change.target.part) for change in _of_vcpus(plan)}
    for guest in snapshot.guests:
        ones = [(vcpu, cpus) for vcpu, cpus in guest.vcpu_affinities.items() if cpus.bits.bit_count() == 1]
        if staying := [cpus for vcpu, cpus in ones if (guest.uuid, vcpu) not in moved]:
            yield _Use(guest.uuid, guest.name, union(staying))


def _of_vcpus(plan: Plan) -> Iterator[AffinityChange]:
    return (change for change in plan.changes if isinstance(change, AffinityChange) and change.target.kind == "vcpu")


def staying(snapshot: Snapshot, moved: Container[TargetKey]) -> CpuSet:
    threads = (
        vcpu.thread
        for guest in snapshot.guests
        for vcpu in guest.vcpus
        if vcpu.thread is not None and guest.vcpu_targets[vcpu.id].key not in moved
    )
    return restricted(threads, snapshot)
