"""Whether the isolated CPUs that a plan hands out are still free: another plan for the same CPUs may have been applied
since. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from pinner.model.change import AffinityChange, PartitionState, StateChange, TargetKey
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import StalePlan
from pinner.model.plan import Plan
from pinner.model.snapshot import Snapshot
from pinner.planning.context import guest_targets


def require_free(plan: Plan, snapshot: Snapshot) -> None:
    """Raises StalePlan where the plan gives a vCPU an isolated CPU to which a vCPU of another guest is pinned; with smt
    ``isolate``, also where that vCPU is on another thread of the same core.

    That guest was pinned after the plan was made, unless the CPU is among the plan's ``contested`` ones, and the plan
    lists the guest as unplaced or has skipped it. vCPUs that the plan moves away are no obstacle.
    """
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
    """The isolated CPUs that a plan of this snapshot hands out although a vCPU that it does not move is pinned there:
    one of a guest that is unplaced, or in backoff."""
    handed_out = _handed_out(plan, snapshot)
    return handed_out & union(use.cpus for use in _in_use(plan, snapshot)) if handed_out else handed_out


@dataclass(frozen=True, slots=True)
class _Use:
    """A guest, and the CPUs to which its vCPUs are pinned one to one."""

    guest: str
    """Its UUID."""
    name: str
    cpus: CpuSet


def _handed_out(plan: Plan, snapshot: Snapshot) -> CpuSet:
    """The isolated CPUs that the plan gives to one vCPU each, and that this vCPU does not have yet; with smt
    ``isolate``, their whole cores."""
    isolated = snapshot.topology.isolated | union(
        change.after.cpus
        for change in plan.changes
        if isinstance(change, StateChange)
        and isinstance(change.after, PartitionState)
        and change.after.kind == "isolated"
    )
    if not isolated:
        return isolated
    now = _affinities(snapshot)
    cpus = isolated & union(
        change.after
        for change in plan.changes
        if isinstance(change, AffinityChange)
        and change.target.kind == "vcpu"
        and len(change.after) == 1
        and now.get(change.target.key) != change.after
    )
    if plan.request.smt == "isolate":
        return cpus | union(cpu.siblings for cpu in snapshot.topology.cpus if cpu.id in cpus)
    return cpus


def _in_use(plan: Plan, snapshot: Snapshot) -> Iterator[_Use]:
    """The uses of CPUs that the plan does not end."""
    moved = {change.target.key for change in plan.changes}
    now = _affinities(snapshot)
    for guest in snapshot.guests:
        pinned = [
            now[target.key]
            for target, _ in guest_targets(guest)
            if target.kind == "vcpu" and target.key not in moved and len(now[target.key]) == 1
        ]
        yield _Use(guest.uuid, guest.name, union(pinned))


def _affinities(snapshot: Snapshot) -> dict[TargetKey, CpuSet]:
    """The affinity of each vCPU."""
    return {
        target.key: thread.affinity
        for guest in snapshot.guests
        for target, threads in guest_targets(guest)
        if target.kind == "vcpu"
        for thread in threads
    }
