"""The order of a plan's guests: a guest leaves its CPUs before another guest gets them. Pure.

In such an order each intermediate state is valid: no CPU is the only CPU of vCPUs of two guests. Where guests exchange
CPUs, there is no such order.
"""

from collections.abc import Iterable

from pinner.model.change import AffinityChange, PlannedChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.groups import Group, group_of


def ranks(changes: Iterable[PlannedChange]) -> dict[Group, int]:
    """The position of each guest in a valid order; guests without one are the last. Otherwise the order stays."""
    ordered, stuck = _ordered(changes)
    return {group: position for position, group in enumerate((*ordered, *stuck))}


def exchanging(changes: Iterable[PlannedChange]) -> tuple[Target, ...]:
    """A vCPU of each guest without a valid order: it gets a CPU that another such guest leaves only later. Empty where
    all guests have an order."""
    changes = tuple(changes)
    _, stuck = _ordered(changes)
    targets = {group_of(change.target): change.target for change in changes if change.target.kind == "vcpu"}
    return tuple(targets[group] for group in stuck)


def warning(changes: Iterable[PlannedChange]) -> str:
    """The warning of a plan in which guests exchange CPUs; empty for another plan."""
    if not (guests := exchanging(changes)):
        return ""
    names = ", ".join(sorted(target.name for target in guests))
    return f"guests {names} exchange CPUs: while the plan is applied, vCPUs of two guests share a CPU for a moment"


def _ordered(changes: Iterable[PlannedChange]) -> tuple[list[Group], list[Group]]:
    """The guests in a valid order, and those without one."""
    vcpus = [each for each in changes if isinstance(each, AffinityChange) and each.target.kind == "vcpu"]
    waits = _waits(vcpus)
    left, ordered = list(waits), []
    while ready := next((group for group in left if waits[group].isdisjoint(left)), None):
        ordered.append(ready)
        left.remove(ready)
    return ordered, left


def _waits(vcpus: Iterable[AffinityChange]) -> dict[Group, set[Group]]:
    """For each guest the guests that have to leave a CPU first."""
    vcpus = tuple(vcpus)
    leaving: dict[CpuSet, Group] = {}
    for change in vcpus:
        for mask in change.before:
            if len(mask.cpus) == 1 and mask.cpus != change.after:
                leaving[mask.cpus] = group_of(change.target)
    waits: dict[Group, set[Group]] = {group_of(change.target): set() for change in vcpus}
    for change in vcpus:
        group = group_of(change.target)
        if leaving.get(change.after, group) != group:
            waits[group].add(leaving[change.after])
    return waits
