"""Guests and free CPUs of a host as values of a packing, and the packing of guests by the request's strategy."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from pinner.model.cpuset import CpuSet
from pinner.model.guest import Guest
from pinner.model.objective import Optimality
from pinner.model.request import OPTIMAL
from pinner.model.topology import NodeId
from pinner.planning.context import Context, plugged
from pinner.planning.memory_balance import MemoryBalance, outstanding
from pinner.planning.packing import values
from pinner.planning.packing.allocation import allocate, score_of
from pinner.planning.packing.bound import bound as bound_of
from pinner.planning.packing.heuristic import Packing, pack
from pinner.planning.strategies import node_choice
from pinner.planning.strategies.node_choice import Preference

if TYPE_CHECKING:  # the model of the solver is imported only where rules have no proof
    from pinner.planning.packing.solver import Minimise

_Keys = tuple[tuple[str, int, tuple[tuple[NodeId, int], ...], int], ...]
"""The values of guests that can be hashed."""
_QUICK_BUDGET = 100
"""The budget of the strategies for which a proof is a help, and no promise."""


@dataclass(frozen=True, slots=True)
class FreeCores:
    """The cores of a pool by node, which of their CPUs are free, and the free memory."""

    cores: Mapping[NodeId, Sequence[CpuSet]]
    free: Mapping[NodeId, CpuSet]
    memory: MemoryBalance
    preferences: dict[str, Mapping[NodeId, Preference]]
    """How good each node is for each guest that was asked for, by UUID: this does not depend on what is free."""

    def nodes(self, context: Context) -> tuple[values.Node, ...]:
        """The nodes of a packing. With smt ``isolate``, a core counts as its lowest CPU, if all its CPUs are free."""
        l3 = {cpu.id: cpu.l3 for cpu in context.snapshot.topology.cpus}
        isolate = context.request.smt == "isolate"
        found = []
        for node, cores in self.cores.items():
            domains: dict[int | None, list[values.Core]] = {}
            for core in cores:
                whole = core <= self.free[node]
                if isolate and not whole:
                    continue
                cpus = [core.lowest] if isolate else core & self.free[node]
                if mask := sum(1 << cpu for cpu in cpus):
                    domains.setdefault(l3[core.lowest], []).append(values.Core(mask, not whole))
            found.append(
                values.Node(
                    node, tuple(values.Domain(tuple(each)) for each in domains.values()), self.memory.room(node)
                )
            )
        return tuple(found)

    def counted(self, context: Context, cpus: Sequence[int]) -> Sequence[int]:
        """The CPUs as a packing counts them: with smt ``isolate``, the lowest of each core."""
        cores = context.allocatable.cores
        return [cores[cpu].lowest for cpu in cpus] if context.request.smt == "isolate" else cpus


def packed(context: Context, free: FreeCores, guests: Iterable[Guest]) -> dict[str, tuple[int, ...]]:
    """The CPUs of each guest that fits, one for each vCPU, by UUID."""
    nodes, asked = free.nodes(context), [_asked(context, guest, free) for guest in guests]
    return allocate(nodes, sorted(asked, key=_order), _best(context, nodes, asked).layout)


def least_unplaced(context: Context, free: FreeCores, guests: Iterable[Guest]) -> int:
    """So many of the guests are unplaced, however they are packed; there may be more."""
    return bound_of(free.nodes(context), [_asked(context, guest, free) for guest in guests]).unplaced


def optimality(
    context: Context, empty: FreeCores, guests: Iterable[Guest], taken: Mapping[str, Sequence[int]]
) -> Optimality:
    """How good it is that the guests have these CPUs, compared with all of them packed anew on the empty cores."""
    nodes, asked = empty.nodes(context), [_asked(context, guest, empty) for guest in guests]
    cpus = {guest.id: empty.counted(context, taken[guest.id]) for guest in asked if guest.id in taken}
    score = score_of(nodes, asked, cpus)
    anew = _bounded(context, nodes, asked)
    found = Packing({}, score, min(anew.bound, score), "" if score <= anew.bound else anew.note)
    return Optimality(_terms(score), _terms(found.bound), round(found.gap, 6), found.proven, found.note)


def _best(context: Context, nodes: tuple[values.Node, ...], guests: Sequence[values.Guest]) -> Packing:
    """The packing of the rules or of the solver, and where it is not proven, that after exchanges between nodes."""
    found = _bounded(context, nodes, guests)
    return found if found.proven or _is_trial(context) else _exchanged(nodes, _keys(guests), found)


def _bounded(context: Context, nodes: tuple[values.Node, ...], guests: Sequence[values.Guest]) -> Packing:
    """The packing of the rules, or of the solver where that is better, with the highest bound of both."""
    found = _packed(nodes, _keys(guests))
    if found.proven or _is_trial(context):
        return found
    from pinner.planning.packing import solver

    optimal, solve = context.request.strategy == OPTIMAL, solver.installed()
    if solve is None and not optimal:
        return found
    budget = context.request.solver_budget if optimal else _QUICK_BUDGET
    return _improved(nodes, _keys(guests), budget, solve, quickly=not optimal)


def _is_trial(context: Context) -> bool:
    """Whether the answer is one of the many that are compared for a move: there the rules are good enough."""
    return bool(context.replaced) and context.request.strategy != OPTIMAL


def _keys(guests: Sequence[values.Guest]) -> _Keys:
    return tuple((guest.id, guest.size, tuple(guest.ranks.items()), guest.memory) for guest in guests)


@lru_cache(maxsize=32)
def _packed(nodes: tuple[values.Node, ...], keys: _Keys) -> Packing:
    """The packing of guests with these values by rules. One plan asks for the same packing several times."""
    return pack(nodes, _guests(keys))


@lru_cache(maxsize=32)
def _improved(
    nodes: tuple[values.Node, ...], keys: _Keys, budget: int, solve: "Minimise | None", *, quickly: bool
) -> Packing:
    """The packing of the solver, where it is better."""
    from pinner.planning.packing.optimal import improved

    return improved(nodes, _guests(keys), _packed(nodes, keys), budget, solve=solve, quickly=quickly)


def _exchanged(nodes: tuple[values.Node, ...], keys: _Keys, start: Packing) -> Packing:
    """The packing after exchanges between nodes."""
    from pinner.planning.packing.exchange import exchanged

    return exchanged(nodes, _guests(keys), start)


def _guests(keys: _Keys) -> list[values.Guest]:
    return [values.Guest(name, size, dict(ranks), memory) for name, size, ranks, memory in keys]


def _asked(context: Context, guest: Guest, free: FreeCores) -> values.Guest:
    """The guest, with the nodes that have memory for it, from the nearest to its memory and devices on."""
    snapshot, group, every = context.snapshot, context.groups(guest)[0], context.allocatable.nodes
    if (preferences := free.preferences.get(guest.uuid)) is None:
        preferences = free.preferences[guest.uuid] = node_choice.preferences(snapshot, guest, every)
    nodes = node_choice.with_memory(snapshot, guest, group, every, free.memory)
    ordered = {preference: rank for rank, preference in enumerate(sorted({preferences[node] for node in nodes}))}
    ranks = {node: ordered[preferences[node]] for node in nodes}
    # Huge pages are a resource of their own: whether they are enough is checked for each guest alone.
    needed = 0 if guest.numa.page_kib else outstanding(guest, group)
    return values.Guest(guest.uuid, len(plugged(guest)), ranks, needed)


def _order(guest: values.Guest) -> tuple[int, str]:
    return -guest.size, guest.id


def _terms(score: values.Score) -> dict[str, int]:
    return {
        "unplaced_guests": score.unplaced,
        "farther_nodes": score.rank,
        "shared_cores": score.shared,
        "extra_l3": score.extra_l3,
    }
