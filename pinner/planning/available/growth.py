"""The size of automatic sets: one step, or more where the measured load of a role needs more.

The fullest set grows until none is full, or both have MOST_STEPS together. A set that an earlier plan made one step
larger than needed stays: otherwise a small change of the load would move every guest.
"""

from collections.abc import Iterator

from pinner.model.cpuset import CpuSet
from pinner.model.machine.topology import NodeId
from pinner.model.plan.request import AUTO, Request
from pinner.planning.available import slices
from pinner.planning.available.allocatable_cpus import AllocatableCpus
from pinner.planning.available.slices import MOST_STEPS, Slices, Steps

FULL = 0.95
"""The part of a set's CPUs that the load of its role may use: a set without a free moment measures a little less than
all."""


def is_full(load: float, cpus: CpuSet) -> bool:
    """``load`` is in CPUs."""
    return load > FULL * len(cpus)


def sized(allocatable: AllocatableCpus, request: Request, free: CpuSet, *, isolating: bool) -> dict[NodeId, Slices]:
    def made(steps: Steps) -> dict[NodeId, Slices]:
        return slices.of_nodes(allocatable, request, free, steps, isolating=isolating)

    steps, found = Steps(1, 1), made(Steps(1, 1))
    while grown := _larger(allocatable, request, steps, slices.union_of(found)):
        larger = made(grown)
        if slices.union_of(larger) == slices.union_of(found):
            break
        steps, found = grown, larger
    for other in _others(allocatable, steps) if _may_be_larger(allocatable, request, free) else ():
        candidate = found if other == steps else made(other)
        if _is_now(allocatable, candidate, exactly=other.emulator > steps.emulator):
            return candidate
    return found


def _larger(allocatable: AllocatableCpus, request: Request, steps: Steps, sets: Slices) -> Steps | None:
    if sum(steps) >= MOST_STEPS:
        return None
    demand = allocatable.demand
    options = (
        (demand.housekeeping, sets.housekeeping, request.housekeeping, Steps(steps.housekeeping + 1, steps.emulator)),
        (demand.emulator, sets.emulator, request.emulator, Steps(steps.housekeeping, steps.emulator + 1)),
    )
    full = [
        (load / len(cpus), larger)
        for load, cpus, asked, larger in options
        if asked == AUTO and cpus and is_full(load, cpus)
    ]
    return max(full, key=lambda each: each[0])[1] if full else None


def _may_be_larger(allocatable: AllocatableCpus, request: Request, free: CpuSet) -> bool:
    """Whether a thread has an affinity as small as a set: before the first plan usually none has. Of two automatic sets
    none has all free CPUs, except on nodes with one free core, where all sizes are equal."""
    demand, most = allocatable.demand, len(allocatable.online) // slices.MOST
    both = request.housekeeping == request.emulator == AUTO
    small = any(
        len(mask) <= most and (mask < free if both else mask <= free)
        for mask in demand.housekeeping_now | demand.emulator_now
    )
    return small or bool(allocatable.by_hand)


def _others(allocatable: AllocatableCpus, needed: Steps) -> Iterator[Steps]:
    """To compare with the present sets: the needed size, then each set one step larger. A housekeeping set made by hand
    may have any size."""
    if allocatable.by_hand:
        for housekeeping in range(1, MOST_STEPS):
            emulator = min(needed.emulator, MOST_STEPS - housekeeping)
            yield from (Steps(housekeeping, emulator), Steps(housekeeping, emulator + 1))
        return
    for more in ((0, 0), (1, 0), (0, 1), (1, 1)):
        steps = Steps(needed.housekeeping + more[0], needed.emulator + more[1])
        if sum(steps) <= MOST_STEPS:
            yield steps


def _is_now(allocatable: AllocatableCpus, by_node: dict[NodeId, Slices], *, exactly: bool) -> bool:
    """The emulator set alone shows the size of the housekeeping set too, because it begins after that. With
    ``exactly``, the housekeeping set alone is not enough."""
    sets, now = slices.union_of(by_node), allocatable.demand
    emulator = not now.emulator_now.isdisjoint((sets.emulator, *(part.emulator for part in by_node.values())))
    if allocatable.by_hand:
        return sets.housekeeping == allocatable.by_hand and (emulator or not exactly)
    return emulator or (not exactly and sets.housekeeping in now.housekeeping_now)
