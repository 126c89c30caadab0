"""Every place that one guest of a plan of numa-local could have instead of its own, while the other guests stay where
the plan has them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import NodeId
from pinner.model.plan.objective import Objective, compared
from pinner.model.plan.plan import Plan, vcpus_by_guest
from pinner.model.snapshot import Snapshot
from pinner.planning.available.numa import is_bound_to_nodes
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
    """Whether the plan gives the reason why the guest has no such place."""
    reasons = {
        want.reason for want in made.wanted if want.target.kind == "vcpu" and want.target.owner == move.guest.uuid
    }
    crowded = union(CpuSet.parse(nodes) for reason in reasons for nodes in _CROWDED.findall(reason))
    return any(node in crowded for node in move.nodes if node is not None)


_Move = tuple[Guest, tuple[NodeId, ...], Mapping[int, CpuSet]]


def _moves(context: Context, made: Plan) -> Iterator[_Move]:
    resolved = context.resolve()
    context, _ = divided(context, resolved.roles)
    pools = {node: made.roles.vcpu & cpus for node, cpus in context.allocatable.nodes.items()}
    context = core_classes.kept_apart(
        context, made.roles.vcpu, lambda cpus: {node: len(pool & cpus) for node, pool in pools.items()}, crowd=True
    )
    placed = vcpus_by_guest(made.wanted)
    guests = [guest for guest in context.guests if guest.uuid in placed]
    homes = {
        (guest.uuid, group): next(node for node, pool in pools.items() if placed[guest.uuid][group.vcpus[0]] <= pool)
        for guest in guests
        for group in context.groups(guest)
    }
    for guest in guests:
        groups = context.groups(guest)
        balance = context.memory_balance()
        for other in guests:
            for group in context.groups(other) if other is not guest else ():
                balance = balance.booked(other, group, homes[other.uuid, group])
        for nodes in product(pools, repeat=len(groups)):
            if nodes == tuple(homes[guest.uuid, group] for group in groups):
                continue
            room, masks = balance, {}
            for group, node in zip(groups, nodes, strict=True):
                cpus = group.within(pools[node])
                bound = group.why and is_bound_to_nodes(guest)
                fits = bound or node_choice.with_memory(context.snapshot, guest, group, [node], room)
                if len(cpus) < len(group.vcpus) or not fits:
                    break
                room = room.booked(guest, group, node)
                masks |= {each.thread.tid: cpus for each in guest.vcpus if each.id in group.vcpus and each.thread}
            else:
                yield guest, nodes, masks | _own(guest, beside(context, resolved, guest, nodes))


def _own(guest: Guest, cpus: CpuSet) -> dict[int, CpuSet]:
    return {
        thread.tid: cpus
        for target, threads in guest.threads_by_target.items()
        if target.kind != "vcpu"
        for thread in threads
    }
