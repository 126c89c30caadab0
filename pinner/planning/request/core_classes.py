"""Hosts whose cores differ (P and E cores, big and LITTLE, unequal level-3 caches): a guest gets cores of one kind."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import groupby

from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.plan.plan import Wanted
from pinner.model.snapshot import Snapshot
from pinner.model.text import listed
from pinner.planning.request.context import Context

_NAMED = 3


@dataclass(frozen=True, slots=True)
class _Choice:
    """One domain (a class, or a part of one), or all domains of a class."""

    domains: tuple[int, ...]
    cpus: CpuSet
    largest: int
    """vCPUs for which the node with most room has some, without any guest."""

    def can_have(self, context: Context, guest: Guest) -> bool:
        """While no other guest uses it."""
        fit = all(len(group.within(self.cpus)) >= len(group.vcpus) for group in context.groups(guest))
        return fit and max(len(group.vcpus) for group in context.groups(guest)) <= self.largest

    def room(self, free: list[int]) -> int:
        return sum(free[domain] for domain in self.domains)

    def take(self, vcpus: int, free: list[int]) -> None:
        """Below 0 where vCPUs share CPUs."""
        for domain in self.domains[:-1]:
            taken = min(vcpus, max(free[domain], 0))
            free[domain] -= taken
            vcpus -= taken
        free[self.domains[-1]] -= vcpus


Room = Callable[[CpuSet], Mapping[int | None, int]]
"""vCPUs for which each node has room."""


def kept_apart(context: Context, pool: CpuSet, room: Room, *, crowd: bool, one_to_one: bool = False) -> Context:
    """Binds each guest to one domain, or to one class (docs/strategies.md). Where some guest then has no room, guests
    get what they fill best. With ``crowd`` vCPUs may share CPUs: a guest without room gets the class with the most
    room; else it may use all cores. Between clusters a guest never does. ``one_to_one``: a guest without room gets no
    CPU, and the packing chooses within a class."""
    topology = context.snapshot.topology
    domains = topology.core_classes if one_to_one else topology.core_domains
    if len(domains) < 2:
        return context
    choices = tuple(_choices(topology.core_classes, domains, pool, room))
    free = [sum(room(pool & domain).values()) for domain in domains]
    cores, without = _assigned(context, choices, free, best_fit=False, crowd=crowd, one_to_one=one_to_one)
    if without:
        best, best_without = _assigned(context, choices, free, best_fit=True, crowd=crowd, one_to_one=one_to_one)
        cores = best if best_without < without else cores
    crowded = _crowded(context, cores, pool) if topology.clusters else frozenset()
    return replace(context, cores={**context.cores, **cores}, crowded=crowded)


def _crowded(context: Context, cores: Mapping[str, CpuSet], pool: CpuSet) -> frozenset[str]:
    """Guests with a CPU for each vCPU, but not in the clusters that they get."""
    return frozenset(
        guest.uuid
        for guest in context.guests
        for cpus in [cores.get(guest.uuid)]
        if cpus is not None
        and any(len(group.within(cpus)) < len(group.vcpus) for group in context.groups(guest))
        and all(len(group.within(pool)) >= len(group.vcpus) for group in context.groups(guest))
    )


def warnings(snapshot: Snapshot, wanted: Iterable[Wanted]) -> Iterator[str]:
    classes = snapshot.topology.core_classes
    if len(classes) < 2:
        return
    cpus: dict[str, CpuSet] = {}
    for want in wanted:
        if want.target.kind == "vcpu":
            cpus[want.target.owner] = cpus.get(want.target.owner, CpuSet()) | want.cpus
    names = {guest.uuid: guest.name for guest in snapshot.guests}
    mixed = [names[uuid] for uuid, used in cpus.items() if sum(1 for each in classes if each & used) > 1]
    if mixed:
        yield (
            f"the vCPUs of {listed(mixed, _NAMED)} may run on cores of different speed: CPUs {classes[0]} "
            f"are the host's fastest, CPUs {union(classes[1:])} are slower"
        )
    for slower in classes[1:]:
        there = {guest.uuid for guest in snapshot.guests if union(guest.vcpu_affinities.values()) <= slower}
        if new := [names[uuid] for uuid, used in cpus.items() if used <= slower and uuid not in there]:
            yield (
                f"the vCPUs of {listed(new, _NAMED)} get slower cores (CPUs {slower}): the faster ones have no room "
                "for all guests"
            )


def _choices(classes: tuple[CpuSet, ...], domains: tuple[CpuSet, ...], pool: CpuSet, room: Room) -> Iterator[_Choice]:
    """Fastest first; the domains of a class, then all of them."""
    rank = {
        number: next(n for n, each in enumerate(classes) if domain <= each) for number, domain in enumerate(domains)
    }
    for _, group in groupby(range(len(domains)), key=rank.__getitem__):
        numbers = tuple(group)
        for chosen in (*((number,) for number in numbers), *([numbers] if len(numbers) > 1 else [])):
            cpus = pool & union(domains[number] for number in chosen)
            yield _Choice(chosen, cpus, max(room(cpus).values(), default=0))


def _assigned(
    context: Context, choices: tuple[_Choice, ...], room: list[int], *, best_fit: bool, crowd: bool, one_to_one: bool
) -> tuple[dict[str, CpuSet], int]:
    """By UUID, and the number of guests without room."""
    free = list(room)
    chosen: dict[str, CpuSet] = {}
    without = 0
    bound = bool(context.snapshot.topology.clusters)

    def give(guest: Guest, choice: _Choice, vcpus: int) -> None:
        chosen[guest.uuid] = choice.cpus & context.cores.get(guest.uuid, choice.cpus)
        choice.take(vcpus, free)

    def fewest(guest: Guest, choice: _Choice) -> int:
        """CPUs for the vCPUs of one group, up to one for each."""
        return min(min(len(group.within(choice.cpus)), len(group.vcpus)) for group in context.groups(guest))

    here = {guest.uuid: _here(context, guest, choices) for guest in context.guests}
    for guest in context.guests:
        now = here[guest.uuid]
        if now is not None and len(now.domains) == 1 and now.can_have(context, guest):
            give(guest, now, len(guest.plugged))
    for guest in context.guests:
        if guest.uuid in chosen:
            continue
        able = [each for each in choices if each.can_have(context, guest)]
        with_room = [each for each in able if each.room(free) >= len(guest.plugged)]
        if with_room:
            best = min(with_room, key=lambda each: each.room(free)) if best_fit else with_room[0]
            give(guest, best, len(guest.plugged))
            continue
        without += 1
        if bound and not able:
            able = [each for each in choices if all(group.within(each.cpus) for group in context.groups(guest))]
        if able and (crowd or bound):
            now = here[guest.uuid]
            shared = now if now in able else max(able, key=lambda each: (fewest(guest, each), each.room(free)))
            give(guest, shared, 0 if one_to_one else len(guest.plugged))
    return chosen, without


def _here(context: Context, guest: Guest, choices: tuple[_Choice, ...]) -> _Choice | None:
    """Without CPUs that no vCPU may get."""
    masks, allocatable = context.recorded(guest) or context.current(guest), context.allocatable
    cpus = union(masks.values()) & (allocatable.for_vcpus(allocatable.shared) | allocatable.unbalanced)
    return next((each for each in choices if cpus and cpus <= each.cpus), None)
