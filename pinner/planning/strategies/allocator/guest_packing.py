"""A host's guests and free CPUs as values of a packing, and the packing by the request's strategy."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from pinner.model.guest.guest import Guest
from pinner.model.guest.guest_numa import GuestNuma
from pinner.model.machine.topology import NodeId
from pinner.model.plan.objective import Optimality
from pinner.model.plan.request import OPTIMAL
from pinner.planning.available.numa import MemoryBalance, outstanding
from pinner.planning.packing import values
from pinner.planning.packing.allocation import allocate, score_of
from pinner.planning.packing.allocation import bound as bound_of
from pinner.planning.packing.heuristic import Packing, pack
from pinner.planning.request.context import Context
from pinner.planning.strategies.allocator import node_choice
from pinner.planning.strategies.allocator.node_choice import Preference

if TYPE_CHECKING:  # the model of the solver is imported only where rules have no proof
    from pinner.planning.packing.program import Minimise

_ONE_CELL = GuestNuma()
CoreOfCache = tuple[int, int | None]
NOT_ASKED = "the bound is arithmetic where guests stay: strategy 'optimal' asks the solver"


@dataclass(frozen=True, slots=True)
class Known:
    """Several packings of a plan ask for these."""

    preferences: dict[tuple[object, ...], Mapping[NodeId, Preference]] = field(default_factory=dict)
    """By shares of memory and devices, however full a node is."""
    kinds: dict[tuple[object, ...], dict[tuple[object, ...], "_Kind"]] = field(default_factory=dict)


class _Kind(NamedTuple):
    size: int
    ranks: Mapping[NodeId, int]
    memory: int

    def named(self, name: str) -> values.PackingGuest:
        return values.PackingGuest(name, *self)


class Packed(NamedTuple):
    cpus: Mapping[str, tuple[int, ...]]
    nodes: Mapping[str, NodeId]
    packing: Packing


@dataclass(frozen=True, slots=True)
class FreeCores:
    cores: Mapping[NodeId, tuple[CoreOfCache, ...]]
    free: Mapping[NodeId, int]
    memory: MemoryBalance
    known: Known

    def nodes(self, context: Context) -> tuple[values.PackingNode, ...]:
        isolate = context.request.smt == "isolate"
        return tuple(
            _node(node, cores, self.free[node], self.memory.room(node), isolate) for node, cores in self.cores.items()
        )

    def guests(self, context: Context, guests: Iterable[Guest]) -> list[values.PackingGuest]:
        kinds, named = self.known.kinds.setdefault(tuple(self.memory.free.items()), {}), []
        for guest in guests:
            resident, special = tuple(guest.memory_per_node.items()), "" if guest.numa == _ONE_CELL else guest.uuid
            key = guest.memory_kib, guest.plugged, guest.pci, resident, special
            if (kind := kinds.get(key)) is None:
                kind = kinds[key] = self._kind(context, guest)
            named.append(kind.named(guest.uuid))
        return named

    def _kind(self, context: Context, guest: Guest) -> _Kind:
        snapshot, group, every = context.snapshot, context.groups(guest)[0], context.allocatable.nodes
        alike = tuple(node_choice.memory_shares(guest).items()), guest.pci
        if (preferences := self.known.preferences.get(alike)) is None:
            preferences = self.known.preferences[alike] = node_choice.preferences(snapshot, guest, every)
        nodes = node_choice.with_memory(snapshot, guest, group, every, self.memory)
        ordered = {preference: rank for rank, preference in enumerate(sorted({preferences[node] for node in nodes}))}
        ranks = {node: ordered[preferences[node]] for node in nodes}
        # Huge pages are a resource of their own: whether they are enough is checked for each guest alone.
        needed = 0 if guest.numa.page_kib else outstanding(guest, group)
        return _Kind(len(guest.plugged), ranks, needed)

    def counted(self, context: Context, cpus: Sequence[int]) -> Sequence[int]:
        cores = context.allocatable.cores
        return [cores[cpu].lowest for cpu in cpus] if context.request.smt == "isolate" else cpus


def packed(context: Context, free: FreeCores, guests: Iterable[Guest]) -> Packed:
    nodes, wanted = free.nodes(context), free.guests(context, guests)
    # Many answers are compared for a move: only their bound, the same for all, is worth a search.
    packing = _best(context, nodes, wanted, trial=bool(context.replaced))
    homes = {name: nodes[pieces[0].node].id for name, pieces in packing.layout.items()}
    return Packed(allocate(nodes, sorted(wanted, key=_order), packing.layout), homes, packing)


def least_unplaced(context: Context, free: FreeCores, guests: Iterable[Guest]) -> int:
    """A bound: there may be more."""
    return bound_of(free.nodes(context), free.guests(context, guests)).unplaced


def optimality(
    context: Context, empty: FreeCores, guests: Iterable[Guest], taken: Mapping[str, Sequence[int]], *, some_stay: bool
) -> Optimality:
    """Of these CPUs, compared with all guests packed anew. Where some stay, nobody has packed them anew: only
    ``optimal`` asks the solver for the bound then."""
    nodes, wanted = empty.nodes(context), empty.guests(context, guests)
    cpus = {guest.id: empty.counted(context, taken[guest.id]) for guest in wanted if guest.id in taken}
    score = score_of(nodes, wanted, cpus)
    by_rules = some_stay and context.request.strategy != OPTIMAL
    anew = (
        replace(_packed_by_rules(nodes, tuple(wanted)), note=NOT_ASKED) if by_rules else _best(context, nodes, wanted)
    )
    return optimality_of(anew, score)


def optimality_of(anew: Packing, score: values.Score) -> Optimality:
    packing = Packing({}, score, min(anew.bound, score), "" if score <= anew.bound else anew.note)
    return Optimality(_terms(score), _terms(packing.bound), round(packing.gap, 6), packing.proven, packing.note)


def _best(
    context: Context,
    nodes: tuple[values.PackingNode, ...],
    guests: Sequence[values.PackingGuest],
    *,
    trial: bool = False,
) -> Packing:
    packing = _packed_by_rules(nodes, tuple(guests))
    if packing.proven or _is_trial(context):
        return packing
    from pinner.planning.packing import program

    # Elsewhere a proof is a help, and no promise.
    optimal, budget = context.request.strategy == OPTIMAL, context.request.solver_budget
    solve = None if trial else program.installed()
    return _improved(nodes, tuple(guests), budget, solve, quickly=trial or not optimal)


def _is_trial(context: Context) -> bool:
    """The rules are good enough for many answers that are compared for a move."""
    return bool(context.replaced) and context.request.strategy != OPTIMAL


@lru_cache(maxsize=128)
def _node(
    node: NodeId, cores: tuple[CoreOfCache, ...], free: int, memory: int | None, isolate: bool
) -> values.PackingNode:
    """With smt ``isolate``, a core counts as its lowest CPU, if all its CPUs are free."""
    domains: dict[int | None, list[values.Core]] = {}
    for core, cache in cores:
        here = core & free
        begun = here != core
        if here and not (isolate and begun):
            domains.setdefault(cache, []).append(values.Core(here & -here if isolate else here, begun))
    return values.PackingNode(node, tuple(values.PackingDomain(tuple(each)) for each in domains.values()), memory)


@lru_cache(maxsize=32)
def _packed_by_rules(nodes: tuple[values.PackingNode, ...], guests: tuple[values.PackingGuest, ...]) -> Packing:
    return pack(nodes, guests)


@lru_cache(maxsize=32)
def _improved(
    nodes: tuple[values.PackingNode, ...],
    guests: tuple[values.PackingGuest, ...],
    budget: int,
    solve: "Minimise | None",
    *,
    quickly: bool,
) -> Packing:
    """Where nodes are not alike, exchanges come first: they prove most such packings."""
    from pinner.planning.packing.exchange import exchanged
    from pinner.planning.packing.optimal import improved
    from pinner.planning.packing.patterns import are_alike

    packing = _packed_by_rules(nodes, guests)
    if not are_alike(nodes, guests):
        packing = exchanged(nodes, guests, packing)
    if solve is not None or not quickly:
        packing = improved(nodes, guests, packing, budget, solve=solve, quickly=quickly)
    return packing if packing.proven else exchanged(nodes, guests, packing)


def _order(guest: values.PackingGuest) -> tuple[int, str]:
    return -guest.size, guest.id


def _terms(score: values.Score) -> dict[str, int]:
    return {
        "unplaced_guests": score.unplaced,
        "farther_nodes": score.rank,
        "shared_cores": score.shared,
        "extra_l3": score.extra_l3,
    }
