"""Each role's part of a node's free CPUs, and the size of automatic sets: one step, or more where a role's load needs
more. The fullest set grows until none is full, or both have MOST_STEPS together. A set that an earlier plan made one
step too large stays: otherwise a small change of the load would move every guest."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import NamedTuple

from pinner.model.cpuset import CpuSet, union
from pinner.model.machine.process import CpuLimit
from pinner.model.machine.topology import NodeId
from pinner.model.plan.request import AUTO, Request
from pinner.planning.available.allocatable_cpus import AllocatableCpus

ROLES = ("housekeeping", "emulators", "vCPUs")
_PART = 8
"""A step is a node's CPUs divided by this."""
MOST = 2
"""Both automatic sets take at most a node's free CPUs divided by this."""
_FEWEST_NODES = 2
"""Of housekeeping: daemons of a host with two nodes have memory on both."""
MOST_STEPS = _PART // MOST
"""Of both sets together."""


class Steps(NamedTuple):
    housekeeping: int
    emulator: int


@dataclass(frozen=True, slots=True)
class Slices:
    housekeeping: CpuSet = CpuSet()
    emulator: CpuSet = CpuSet()
    vcpu: CpuSet = CpuSet()
    note: str = ""


def of_nodes(
    allocatable: AllocatableCpus, request: Request, free: CpuSet, steps: Steps, *, apart: bool = False
) -> dict[NodeId, Slices]:
    """``apart``: each vCPU gets a CPU to itself. Where the sets need CPUs of guests on slower cores, or vCPUs get
    isolated CPUs, these guests move: the next plan finds none there."""
    if apart and allocatable.isolating and (settled := allocatable.order.settled):
        unbalanced = allocatable.unbalanced
        settled -= union(cpus for cpus in allocatable.nodes.values() if cpus & unbalanced)
        allocatable = replace(allocatable, order=replace(allocatable.order, settled=settled))
    by_node = _of_nodes(allocatable, request, free, steps, apart=apart)
    sets = union_of(by_node)
    if not allocatable.order.settled & (sets.housekeeping | sets.emulator):
        return by_node
    allocatable = replace(allocatable, order=replace(allocatable.order, settled=CpuSet()))
    return _of_nodes(allocatable, request, free, steps, apart=apart)


def _of_nodes(
    allocatable: AllocatableCpus, request: Request, free: CpuSet, steps: Steps, *, apart: bool
) -> dict[NodeId, Slices]:
    hosts = for_housekeeping(allocatable, free, steps.housekeeping)
    by_node = {
        node: _of_node(allocatable, request, node, free & cpus, hosts & cpus, steps, apart=apart)
        for node, cpus in allocatable.nodes.items()
    }
    if request.housekeeping == AUTO and steps.housekeeping > 1:
        by_node = {
            node: _with_all_for_no_vcpu(allocatable, part, hosts & allocatable.nodes[node])
            for node, part in by_node.items()
        }
    for limit in allocatable.limits if request.emulator == AUTO else ():
        by_node |= _with_emulators_within(allocatable, limit, by_node)
    for cpus in allocatable.definitions if apart and request.emulator == AUTO else ():
        by_node |= _with_spare_core(allocatable, cpus, by_node)
    return by_node


def _with_all_for_no_vcpu(allocatable: AllocatableCpus, part: Slices, hosts: CpuSet) -> Slices:
    """Housekeeping of several steps also has the CPUs that no vCPU may use, and that emulators leave."""
    more = hosts - allocatable.for_vcpus(hosts) - part.emulator
    return replace(part, housekeeping=part.housekeeping | more, vcpu=part.vcpu - more)


def for_housekeeping(allocatable: AllocatableCpus, free: CpuSet, steps: int) -> CpuSet:
    """Of these, the CPUs of the nodes that give housekeeping some. Of small nodes with room for three sets, an eighth
    of which is less than a core, one step takes as many as make an eighth of the host, at least two."""
    hosts, taken, chosen = allocatable.for_host(free), 0, CpuSet()
    for number, cpus in enumerate(cpus for cpus in allocatable.nodes.values() if hosts & cpus):
        size, core = len(cpus) // _PART, len(allocatable.cores[(hosts & cpus).lowest])
        is_small = size < core and allocatable.count_cores(hosts & cpus) >= len(ROLES)
        enough = number >= _FEWEST_NODES and taken >= len(allocatable.online) // _PART
        if steps > 1 or not is_small or not enough:
            taken, chosen = taken + max(size, core), chosen | cpus
    return hosts & chosen


def _with_emulators_within(
    allocatable: AllocatableCpus, limit: CpuLimit, by_node: dict[NodeId, Slices]
) -> dict[NodeId, Slices]:
    """The node whose emulator set gets a core of those that a cgroup allows; none where the set has one already."""
    if spared := _with_spare_core(allocatable, limit.cpus, by_node):
        return spared
    node, cores = _cores_within(allocatable, limit.cpus, by_node)
    if not cores:
        return {}
    part, core = by_node[node], cores[0]
    note = f"{limit} is small: emulator threads share CPUs {core} with vCPUs"
    return {node: replace(part, emulator=part.emulator | core, note="; ".join(filter(None, (part.note, note))))}


def _with_spare_core(allocatable: AllocatableCpus, cpus: CpuSet, by_node: dict[NodeId, Slices]) -> dict[NodeId, Slices]:
    """As _with_emulators_within; none where vCPUs need all cores of these CPUs."""
    node, cores = _cores_within(allocatable, cpus, by_node)
    part, vcpus = by_node[node], union(each.vcpu for each in by_node.values())
    spare = (core for core in cores if allocatable.order.can_spare(core, vcpus))
    if len(cores) > 1 and (core := next(spare, None)):
        return {node: replace(part, emulator=part.emulator | core, vcpu=part.vcpu - core)}
    return {}


def _cores_within(
    allocatable: AllocatableCpus, cpus: CpuSet, by_node: dict[NodeId, Slices]
) -> tuple[NodeId, list[CpuSet]]:
    """Of the node with most; none where the emulator set has one of these CPUs."""
    has_one = any(part.emulator & cpus for part in by_node.values())
    cores = {
        node: [] if has_one else list(_FreeCores(allocatable, allocatable.in_turn(part.vcpu & cpus, 0)))
        for node, part in by_node.items()
    }
    return max(cores.items(), key=lambda each: len(each[1]))


def union_of(by_node: Mapping[NodeId, Slices]) -> Slices:
    parts = by_node.values()
    return Slices(
        union(part.housekeeping for part in parts),
        union(part.emulator for part in parts),
        union(part.vcpu for part in parts),
    )


def _of_node(
    allocatable: AllocatableCpus,
    request: Request,
    node: NodeId,
    free: CpuSet,
    hosts: CpuSet,
    steps: Steps,
    *,
    apart: bool,
) -> Slices:
    """Roles share CPUs where no CPU would be left for vCPUs. ``hosts``: those for housekeeping."""
    for_vcpus, for_guests = allocatable.for_vcpus(free), allocatable.for_guests(free)
    size = len(allocatable.nodes[node]) // _PART
    needed = min(sum(steps) * max(size, 1), max(len(free) // MOST, len(steps)))
    cores = _FreeCores(allocatable, allocatable.in_turn(free, needed))
    autos = (request.housekeeping == AUTO and bool(hosts), request.emulator == AUTO and not free <= allocatable.spared)
    if not free or not any(autos):
        return Slices(vcpu=free)
    if len(cores) == 1:
        sets = (free if autos[0] else CpuSet(), for_guests if autos[1] else CpuSet())
        return _one_core(Slices(*sets, CpuSet() if apart else for_vcpus), node)
    has_isolated = apart and allocatable.isolating and bool(allocatable.unbalanced & allocatable.nodes[node])
    take = _Take(allocatable, size, len(free) // (1 if has_isolated else MOST))
    others = 1 if has_isolated or not autos[1] else len(ROLES) - 1
    housekeeping = _for_host(take, cores, hosts, steps.housekeeping, others) if autos[0] else CpuSet()
    take = take.beside(housekeeping)
    rest = cores.without(housekeeping | (free - for_guests))
    if not autos[1] or not rest.cpus:
        return Slices(housekeeping=housekeeping, vcpu=rest.cpus)
    if apart:
        return _beside_own(housekeeping, rest, node, take, steps, has_isolated=has_isolated)
    # Emulators share the vCPUs' CPUs on a node that is small itself, not on one that others made small.
    made_small = len(rest) > 1 and bool(allocatable.restricted & allocatable.nodes[node] or free - for_guests)
    take = take.within(rest.cpus, rest.cpus & for_vcpus) if free - for_guests else take
    emulator = take.first(rest, steps.emulator, int(made_small))
    both = emulator & for_vcpus
    if rest.cpus - emulator or not both:
        return Slices(housekeeping, emulator, rest.cpus - emulator)
    note = f"{_begin(node)}is small: emulator threads share CPUs {both} with vCPUs"
    return Slices(housekeeping, emulator, both, note)


def _for_host(take: "_Take", cores: "_FreeCores", hosts: CpuSet, steps: int, others: int) -> CpuSet:
    """One step has no CPUs but ``hosts``, beyond its minimum, and as long as these are enough for that, none to which
    an operator pinned QEMU's own threads."""
    allocatable = take.allocatable
    own = hosts - allocatable.order.qemus_own
    own = own if allocatable.cores_worth(own) >= allocatable.minimum_cores else hosts
    first = replace(take, size=min(take.size, len(own))) if steps == 1 else take
    return first.first(cores.beginning_with(own), steps, others)


def _beside_own(
    housekeeping: CpuSet, rest: "_FreeCores", node: int | None, take: "_Take", steps: Steps, *, has_isolated: bool
) -> Slices:
    """Emulator threads can share only housekeeping's CPUs. ``has_isolated``: housekeeping and emulators may use all the
    others."""
    if has_isolated:
        emulator = take.first(rest, steps.emulator, 0)
    elif len(rest) > 1 or not housekeeping:
        emulator = take.first(rest, steps.emulator, 1)
    else:
        note = f"{_begin(node)}is small: emulator threads share CPUs {housekeeping} with housekeeping"
        return Slices(housekeeping, housekeeping, rest.cpus, note)
    return Slices(housekeeping, emulator, rest.cpus - emulator)


def _one_core(one: Slices, node: NodeId) -> Slices:
    sets = zip(ROLES, (one.housekeeping, one.emulator, one.vcpu), strict=True)
    sharing = {name: cpus for name, cpus in sets if cpus}
    note = f"{_begin(node)}has one free core: {', '.join(sharing)} share CPUs {union(sharing.values())}"
    return replace(one, note=note) if len(sharing) > 1 else one


@dataclass(frozen=True, slots=True)
class _FreeCores:
    allocatable: AllocatableCpus
    parts: tuple[CpuSet, ...]

    @property
    def cpus(self) -> CpuSet:
        return union(self.parts)

    def __len__(self) -> int:
        return sum(map(self.allocatable.count_cores, self.parts))

    def __iter__(self) -> Iterator[CpuSet]:
        return chain.from_iterable(map(self.allocatable.each_core_within, self.parts))

    def beginning_with(self, cpus: CpuSet) -> "_FreeCores":
        parts = (*(part & cpus for part in self.parts), *(part - cpus for part in self.parts))
        return _FreeCores(self.allocatable, parts)

    def without(self, cpus: CpuSet) -> "_FreeCores":
        return _FreeCores(self.allocatable, tuple(part - cpus for part in self.parts))


@dataclass(frozen=True, slots=True)
class _Take:
    allocatable: AllocatableCpus
    size: int
    most: int
    """For housekeeping and emulators together, where one has several steps."""
    taken: int = 0

    def beside(self, cpus: CpuSet) -> "_Take":
        return replace(self, taken=self.taken + len(cpus))

    def within(self, cpus: CpuSet, for_vcpus: CpuSet) -> "_Take":
        """At least half of what vCPUs may use remains for them; beside one step also what confined ones need."""
        half, needed = (len(for_vcpus) + 1) // MOST, self.allocatable.order.needed(for_vcpus)
        size = max(len(cpus) - max(half, needed), 0)
        return replace(self, size=min(self.size, size), most=min(self.most, self.taken + len(cpus) - half))

    def first(self, cores: _FreeCores, steps: int, others: int) -> CpuSet:
        """``others`` roles share the remaining cores: their minimum remains, or one core where there are too few. A set
        of no step has its minimum. One of several steps stays below ``most``, and leaves one step to the other set."""
        least, remaining = self.allocatable.minimum_cores, self.allocatable.cores_worth(cores.cpus)
        taken = next(iter(cores))
        step = max(self.size, len(taken))
        size = self.size * steps if steps <= 1 else max(min(steps * step, self.most - (self.taken or step)), step)
        worth = self.allocatable.core_worth(taken)
        for core in islice(cores, 1, max(len(cores) - min(others, 1), 1)):
            more = self.allocatable.core_worth(core)
            too_large = len(taken) + len(core) > size or round(remaining - worth - more, 6) < others * least
            if too_large and round(worth, 6) >= least:
                break
            taken, worth = taken | core, worth + more
        return taken


def _begin(node: int | None) -> str:
    return "the host " if node is None else f"node {node} "


def name(node: NodeId) -> str:
    return "the host" if node is None else f"node {node}"


FULL = 0.95
"""The part of a set's CPUs that its role's load may use: a set without a free moment measures a little less than
all."""


def is_full(load: float, cpus: CpuSet) -> bool:
    """``load`` is in CPUs."""
    return load > FULL * len(cpus)


def sized(allocatable: AllocatableCpus, request: Request, free: CpuSet, *, apart: bool) -> dict[NodeId, Slices]:
    def made(steps: Steps) -> dict[NodeId, Slices]:
        return of_nodes(allocatable, request, free, steps, apart=apart)

    if allocatable.steps is not None:
        return made(Steps(*allocatable.steps))
    steps, slices = Steps(1, 1), made(Steps(1, 1))
    while grown := _larger(allocatable, request, steps, union_of(slices)):
        larger = made(grown)
        if union_of(larger) == union_of(slices):
            break
        steps, slices = grown, larger
    if not _may_be_larger(allocatable, request, free):
        return slices
    others = [(other, slices if other == steps else made(other)) for other in _others(allocatable, steps)]
    now = [each for other, each in others if _is_now(allocatable, each, exactly=other.emulator > steps.emulator)]
    return max(now, key=lambda each: sum(_evidence(allocatable, each)), default=slices)


def every_size(request: Request) -> Iterator[Steps]:
    """Of the sets that are automatic; none where no set is. No step: the minimum of cores."""
    sizes = range(MOST_STEPS)
    for housekeeping in sizes if request.housekeeping == AUTO else (1,):
        for emulator in sizes if request.emulator == AUTO else (1,):
            if housekeeping + emulator <= MOST_STEPS and AUTO in (request.housekeeping, request.emulator):
                yield Steps(housekeeping, emulator)


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
    demand, most = allocatable.demand, len(allocatable.online) // MOST
    both = request.housekeeping == request.emulator == AUTO
    small = any(
        len(mask) <= most and (mask < free if both else mask <= free)
        for mask in (*demand.housekeeping_now, *(mask for mask, _ in demand.emulator_now))
    )
    return small or bool(allocatable.by_hand)


def _others(allocatable: AllocatableCpus, needed: Steps) -> Iterator[Steps]:
    """The needed size, then each set one step larger. A housekeeping set made by hand may have any size."""
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
    """The emulator set alone shows the size of the housekeeping set, too, because it begins after that. With
    ``exactly``, the housekeeping set alone is not enough."""
    emulator, housekeeping = _has_emulators(allocatable, by_node), union_of(by_node).housekeeping
    if allocatable.by_hand:
        return housekeeping == allocatable.by_hand and (emulator or not exactly)
    return emulator or (not exactly and housekeeping in allocatable.demand.housekeeping_now)


def _evidence(allocatable: AllocatableCpus, by_node: dict[NodeId, Slices]) -> tuple[bool, bool, bool]:
    """That these sets are the present ones: emulators on all nodes' set show both. The CPUs of a node may also be what
    a definition or cgroups leave a guest of another set."""
    demand, sets = allocatable.demand, union_of(by_node)
    housekeeping = sets.housekeeping in demand.housekeeping_now
    return demand.has_emulators(sets.emulator), housekeeping, _has_emulators(allocatable, by_node)


def _has_emulators(allocatable: AllocatableCpus, by_node: dict[NodeId, Slices]) -> bool:
    sets = union_of(by_node).emulator, *(part.emulator for part in by_node.values())
    return any(map(allocatable.demand.has_emulators, sets))
