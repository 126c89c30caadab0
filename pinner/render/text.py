"""A plan as plain text."""

from collections.abc import Iterator
from typing import assert_never

from pinner.model.change import AffinityChange, PlannedChange, StateChange
from pinner.model.plan.objective import Objective, Optimality, Term
from pinner.model.plan.plan import LeftOut, Move, Plan, Rebalance
from pinner.model.text import listed, memory_by_node, mib
from pinner.render import before_and_after, counted, visible


def render(plan: Plan) -> str:
    return "".join(f"{visible(line)}\n" for line in _lines(plan))


def rebalance(rebalance: Rebalance) -> str:
    if not rebalance.threads:
        return "no gain, every guest gets the same CPUs without it"
    moves = f"{counted(rebalance.guests, 'guest')} ({counted(rebalance.threads, 'thread')}) move"
    terms = ", ".join(f"{term.name} {_values(term)}" for term in rebalance.terms)
    gain = f"{'a gain' if rebalance.gain > 0 else 'no gain'}{f' ({terms})' if terms else ''}"
    return f"{moves}, {gain}" + ("" if rebalance.taken else ": not worth it, no guest moves")


def in_place(plan: Plan) -> str:
    if plan.blocked:
        return "the plan is blocked"
    if plan.unplaced:
        left = counted(len(plan.unplaced), "part" if plan.request.placement else "guest")
        return f"{left} without a place, everything else is where this plan wants it"
    return "everything is where this plan wants it"


def gain(move: Move) -> str:
    terms = ", ".join(f"{term.name} {_values(term)}" for term in move.terms)
    return terms or "makes room for a guest without a place"


_NAMED = 4


def optimality(proof: Optimality) -> str:
    terms = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in proof.score.items())
    if proof.beyond:
        terms += f", without guests that are bound to CPUs or wider than a node ({listed(proof.beyond, _NAMED)})"
    if proof.proven:
        return f"{terms}; proven: no allocation is better"
    bound = ", ".join(str(value) for value in proof.bound.values())
    return f"{terms}; not proven: the bound is {bound}, the gap {proof.gap:.0%}{proof.note and f'; {proof.note}'}"


def _lines(plan: Plan) -> Iterator[str]:
    yield f"plan {plan.id} of host {plan.host}: {plan.request.strategy}"
    yield f"from the snapshot of {plan.basis.taken_at.isoformat(timespec='seconds')} ({plan.basis.snapshot})"
    if plan.blocked:
        yield f"CANNOT BE APPLIED: {plan.blocked}"
    if plan.worse:
        yield f"WORSE THAN NOW: {plan.worse}"
    yield ""
    yield from _roles(plan)
    if plan.rebalance:
        yield f"rebalance: {rebalance(plan.rebalance)}"
    if plan.optimality:
        yield f"allocation: {optimality(plan.optimality)}"
    yield ""
    yield f"changes: {len(plan.changes) or f'none, {in_place(plan)}'}"
    for change in plan.changes:
        before, after = before_and_after(change)
        yield f"  {change.target}: {before} -> {after} ({_scope(change)}; {change.reason})"
    for move in plan.moves:
        yield f"move of guest {move.guest.name}: {gain(move)}"
    for guest in plan.memory:
        remote = f"remote: {mib(guest.remote_now_kib)} now, {mib(guest.remote_kib)} as planned"
        yield f"memory of guest {guest.target.name}: {memory_by_node(guest.per_node)}; {remote}"
    yield from _left_out("not placed", plan.unplaced)
    yield from _left_out("skipped", plan.skipped)
    yield from (f"warning: {warning}" for warning in plan.warnings)
    yield from _isolation(plan)
    yield ""
    yield from _objective(plan.objective)


def _roles(plan: Plan) -> Iterator[str]:
    roles = plan.roles
    for name, cpus in (("housekeeping", roles.housekeeping), ("emulator", roles.emulator), ("vCPU", roles.vcpu)):
        yield f"{name} CPUs: {cpus} ({len(cpus)})"
    yield f"all roles together: {roles.cpus} ({len(roles.cpus)})"
    yield from (f"note: {note}" for note in roles.notes)


def _scope(change: PlannedChange) -> str:
    match change:
        case AffinityChange():
            return counted(len(change.before), "thread")
        case StateChange():
            return "a setting of the kernel"
    assert_never(change)


def _left_out(title: str, items: tuple[LeftOut, ...]) -> Iterator[str]:
    if items:
        yield f"{title}: {len(items)}"
        yield from (f"  {item.label}: {item.why}" for item in items)


def _isolation(plan: Plan) -> Iterator[str]:
    isolation = plan.isolation
    if isolation is None:
        return
    yield ""
    yield f"isolated CPUs: {isolation.wanted} wanted, {isolation.present or 'none'} of them isolated now"
    if isolation.kernel_arguments:
        yield f"  kernel arguments: {isolation.kernel_arguments}"
    if isolation.grub_line:
        yield f"  /etc/default/grub: {isolation.grub_line}"
    yield f"  live partition: {isolation.partition_note}"
    yield from (f"    {command}" for command in isolation.partition)


def _objective(objective: Objective) -> Iterator[str]:
    yield "objective (0 is best; a tier counts only where all tiers above it are equal):"
    for term in objective.terms:
        weight = "" if term.weight == 1 else f", weight {term.weight:g}"
        note = "" if term.asked else ", not asked for"
        yield f"  tier {term.tier}, {term.name}: {_values(term)} {term.unit}{weight}{note}"


def _values(term: Term) -> str:
    return f"{number(term.before)} -> {number(term.after)}"


def number(value: float) -> str:
    """Two digits after the point, none for a whole number."""
    return f"{value:.0f}" if value == int(value) else f"{value:.2f}"
