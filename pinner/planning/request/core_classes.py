"""Hosts whose cores differ in speed (P and E cores, big and LITTLE): no guest silently gets cores of several
classes."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import Topology
from pinner.model.plan.plan import Wanted
from pinner.model.text import listed
from pinner.planning.request.context import Context

_NAMED = 3


@dataclass(frozen=True, slots=True)
class _Class:
    cpus: CpuSet
    free: int
    """On all nodes; below 0 where vCPUs share CPUs."""
    largest: int
    """On the node with most of them, without any guest."""

    def can_have(self, context: Context, guest: Guest) -> bool:
        """While no other guest uses it."""
        fit = all(len(group.within(self.cpus)) >= len(group.vcpus) for group in context.groups(guest))
        return fit and max(len(group.vcpus) for group in context.groups(guest)) <= self.largest


def kept_apart(
    context: Context, pool: CpuSet, room: Callable[[CpuSet], Mapping[int | None, int]], *, crowd: bool
) -> Context:
    """Binds each guest to the cores of one class (docs/strategies.md). Where some guest then has no room, guests
    get the class that they fill best. ``room``: vCPUs for which each node has room. With ``crowd`` vCPUs may share
    CPUs: a guest without room gets the class with the most room; else it may use all cores."""
    if len(sets := context.snapshot.topology.core_classes) < 2:
        return context
    rooms = ((pool & cpus, room(pool & cpus).values()) for cpus in sets)
    classes = tuple(_Class(cpus, sum(each), max(each, default=0)) for cpus, each in rooms)
    fastest, fastest_without = _assigned(context, classes, best_fit=False, crowd=crowd)
    if not fastest_without:
        return replace(context, cores={**context.cores, **fastest})
    best, best_without = _assigned(context, classes, best_fit=True, crowd=crowd)
    return replace(context, cores={**context.cores, **(best if best_without < fastest_without else fastest)})


def warnings(topology: Topology, wanted: Iterable[Wanted]) -> Iterator[str]:
    classes = topology.core_classes
    if len(classes) < 2:
        return
    cpus: dict[str, CpuSet] = {}
    for want in wanted:
        if want.target.kind == "vcpu":
            cpus[want.target.name] = cpus.get(want.target.name, CpuSet()) | want.cpus
    mixed = [name for name, used in cpus.items() if sum(1 for each in classes if each & used) > 1]
    if mixed:
        yield (
            f"the vCPUs of {listed(mixed, _NAMED)} may run on cores of different speed: CPUs {classes[0]} "
            f"are the host's fastest, CPUs {union(classes[1:])} are slower"
        )


def _assigned(
    context: Context, classes: tuple[_Class, ...], *, best_fit: bool, crowd: bool
) -> tuple[dict[str, CpuSet], int]:
    """By UUID, and the number of guests without a class."""
    free = [each.free for each in classes]
    chosen: dict[str, CpuSet] = {}
    without = 0

    def give(guest: Guest, position: int) -> None:
        chosen[guest.uuid] = classes[position].cpus & context.cores.get(guest.uuid, classes[position].cpus)
        free[position] -= len(guest.plugged)

    for guest in context.guests:
        for position in _present(context, guest, classes):
            give(guest, position)
    for guest in context.guests:
        if guest.uuid in chosen:
            continue
        able = [position for position, each in enumerate(classes) if each.can_have(context, guest)]
        with_room = [position for position in able if free[position] >= len(guest.plugged)]
        if with_room:
            give(guest, min(with_room, key=lambda position: free[position]) if best_fit else with_room[0])
        else:
            without += 1
            if able and crowd:
                give(guest, max(able, key=lambda position: (free[position], -position)))
    return chosen, without


def _present(context: Context, guest: Guest, classes: tuple[_Class, ...]) -> Iterator[int]:
    masks = context.recorded(guest) or context.current(guest)
    cpus = union(masks.values()) & context.allocatable.online
    for position, each in enumerate(classes):
        if cpus and cpus <= each.cpus and each.can_have(context, guest):
            yield position
