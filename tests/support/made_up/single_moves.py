"""Places that one guest of a plan could have instead of its own, while the other guests stay where the plan has them:
all of numa-local; of strategies that give each vCPU a CPU of its own, some CPUs of each node."""

import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import permutations, product

from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import NodeId
from pinner.model.plan.objective import Objective, compared
from pinner.model.plan.plan import Plan, vcpus_by_guest
from pinner.model.snapshot import Snapshot
from pinner.planning.available.exclusions import pinned_cpus
from pinner.planning.available.numa import MemoryBalance, VcpuGroup, is_bound_to_nodes
from pinner.planning.objective_terms import ObjectiveMeasure, weights
from pinner.planning.request import core_classes
from pinner.planning.request.context import Context
from pinner.planning.strategies.allocator import node_choice
from pinner.planning.strategies.strategy import asked_terms, beside, divided, installed


@dataclass(frozen=True)
class SingleMove:
    guest: Guest
    nodes: tuple[NodeId, ...]
    masks: Mapping[int, CpuSet]
    """By thread id."""
    objective: Objective
    """From the plan to the move."""


def single_moves(host: Snapshot, made: Plan) -> Iterator[SingleMove]:
    request = made.request
    context = Context.of(host, request)
    measure = ObjectiveMeasure.of(context.snapshot, request.busy_threshold)
    asked = asked_terms(installed()[request.strategy])
    planned = {thread.tid: want.cpus for want in made.wanted for thread in context.threads.get(want.target, ())}
    now, factors = measure.values(planned), weights(context.snapshot, request)
    for guest, nodes, masks in _moves(context, made):
        yield SingleMove(guest, nodes, masks, compared(now, measure.values({**planned, **masks}), factors, asked))


_CROWDED = re.compile(r"nodes? ([\d,-]+), which would be nearer")


def is_excused(made: Plan, move: SingleMove) -> bool:
    """Whether the plan gives the reason why the guest has no such place: a nearer node is full, or ``optimal`` has
    proven its allocation by the four numbers that the plan shows."""
    if made.request.strategy == "optimal" and made.optimality and made.optimality.proven:
        return True
    reasons = {
        want.reason for want in made.wanted if want.target.kind == "vcpu" and want.target.owner == move.guest.uuid
    }
    crowded = union(CpuSet.parse(nodes) for reason in reasons for nodes in _CROWDED.findall(reason))
    return any(node in crowded for node in move.nodes if node is not None)


_Move = tuple[Guest, tuple[NodeId, ...], Mapping[int, CpuSet]]
_Chosen = Callable[[CpuSet, int], list[CpuSet]]
"""CPUs of these for so many vCPUs."""


def _moves(context: Context, made: Plan) -> Iterator[_Move]:
    floats = context.request.strategy == "numa-local"
    resolved = context.resolve(isolating=context.allocatable.isolating, apart=not floats)
    # The plan's sets may have other sizes than the load needs.
    emulators = {node: made.roles.emulator & cpus for node, cpus in context.allocatable.nodes.items()}
    emulator_on = {node: cpus for node, cpus in emulators.items() if cpus}
    resolved = replace(resolved, roles=made.roles, emulator_on=emulator_on)
    context, _ = divided(context, resolved.roles, apart=not floats)
    pools = {node: made.roles.vcpu & cpus for node, cpus in context.allocatable.nodes.items()}
    context = core_classes.kept_apart(
        context,
        made.roles.vcpu,
        lambda cpus: {node: len(pool & cpus) for node, pool in pools.items()},
        crowd=floats,
        one_to_one=not floats,
    )
    placed = vcpus_by_guest(made.wanted)
    homes = {
        (uuid, group): node
        for guest in context.guests
        for group in context.groups(guest)
        for node, pool in pools.items()
        for uuid in [guest.uuid]
        if uuid in placed and union(placed[uuid][vcpu] for vcpu in group.vcpus) <= pool
    }
    for guest in (each for each in context.guests if each.uuid in placed):
        balance, taken = context.memory_balance(), CpuSet()
        for other in context.guests:
            taken |= union(placed[other.uuid].values()) if other is not guest and other.uuid in placed else CpuSet()
            for group in context.groups(other) if other is not guest else ():
                balance = balance.booked(other, group, homes.get((other.uuid, group)))
        taken |= union(pinned_cpus(other) for other in context.others)
        free = pools if floats else {node: pool - taken for node, pool in pools.items()}
        here = {group: homes[guest.uuid, group] for group in context.groups(guest) if (guest.uuid, group) in homes}
        if len(here) == len(context.groups(guest)):
            possible = (dict(zip(here, nodes, strict=True)) for nodes in product(pools, repeat=len(here)))
        else:
            possible = _divided(guest, free, placed[guest.uuid]) if _is_wide(context, guest, pools) else iter(())
        for there in possible:
            if floats and there == here:
                continue
            own = _own(guest, beside(context, resolved, guest, there.values()))
            for chosen in [_every] if floats else _orders(context, guest):
                masks = _masks(context, guest, there, free, balance, chosen)
                # A guest of several nodes has no other place on the same CPUs in another order.
                if masks and (here or union(masks.values()) != union(placed[guest.uuid].values())):
                    yield guest, tuple(there.values()), masks | own


def _is_wide(context: Context, guest: Guest, pools: Mapping[NodeId, CpuSet]) -> bool:
    """No node holds it, and it may have any CPUs."""
    (group, *others), numa = context.groups(guest), guest.numa
    return not others and group.cpus is None and not numa.cells and len(group.vcpus) > max(map(len, pools.values()))


def _divided(
    guest: Guest, free: Mapping[NodeId, CpuSet], now: Mapping[int, CpuSet]
) -> Iterator[dict[VcpuGroup, NodeId]]:
    """Over as many nodes as now, each full before the next one has vCPUs."""
    count = sum(1 for pool in free.values() if pool & union(now.values()))
    for nodes in permutations(free, count):
        rest, parts = list(guest.plugged), dict[VcpuGroup, NodeId]()
        for node in nodes:
            here, rest = rest[: len(free[node])], rest[len(free[node]) :]
            parts |= {VcpuGroup(tuple(here)): node} if here else {}
        if not rest:
            yield parts


def _masks(
    context: Context,
    guest: Guest,
    homes: Mapping[VcpuGroup, NodeId],
    free: Mapping[NodeId, CpuSet],
    room: MemoryBalance,
    chosen: _Chosen,
) -> dict[int, CpuSet]:
    """Empty where the guest does not fit."""
    masks, taken = dict[int, CpuSet](), CpuSet()
    for group, node in homes.items():
        cpus, count = group.within(free[node] - taken), len(group.vcpus)
        bound = group.why and is_bound_to_nodes(guest)
        if len(cpus) < count or not (bound or node_choice.with_memory(context.snapshot, guest, group, [node], room)):
            return {}
        room, own = room.booked(guest, group, node), dict(zip(group.vcpus, chosen(cpus, count), strict=True))
        taken |= CpuSet() if chosen is _every else union(own.values())
        masks |= {each.thread.tid: own[each.id] for each in guest.vcpus if each.id in own and each.thread}
    return masks


def _every(cpus: CpuSet, count: int) -> list[CpuSet]:
    return [cpus] * count


def _orders(context: Context, guest: Guest) -> Iterator[_Chosen]:
    """The first CPUs in some orders: each L3 domain first, and at random."""
    topology, chance = context.snapshot.topology, random.Random(guest.uuid)
    for domain in topology.online_by_l3.values():
        yield lambda cpus, count, domain=domain: list(
            map(CpuSet.one, sorted(cpus, key=lambda cpu: cpu not in domain)[:count])
        )
    for _ in range(_AT_RANDOM):
        yield lambda cpus, count: list(map(CpuSet.one, chance.sample(sorted(cpus), count)))


_AT_RANDOM = 5


def _own(guest: Guest, cpus: CpuSet) -> dict[int, CpuSet]:
    return {
        thread.tid: cpus
        for target, threads in guest.threads_by_target.items()
        if target.kind != "vcpu"
        for thread in threads
    }
