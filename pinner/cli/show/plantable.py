"""A plan as tables for people, with its targets in the few words that fit into a cell."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pinner.cli.frame.context import CommandContext
from pinner.cli.frame.output import Table, cells, cpu_cell, facts, moment, table
from pinner.model.kinds import KINDS
from pinner.model.plan.request import AUTO
from pinner.model.text import memory_by_node, mib, ranges
from pinner.render import before_and_after, text, visible

if TYPE_CHECKING:
    from pinner.model.change import PlannedChange, Target
    from pinner.model.cpuset import CpuSet
    from pinner.model.plan.objective import Objective
    from pinner.model.plan.plan import GuestMemory, Isolation, LeftOut, Move, Plan
    from pinner.model.plan.request import Request


def show_plan(context: CommandContext, plan: "Plan") -> None:
    for part_ in (
        heading(plan),
        changes(plan),
        moves(plan.moves),
        memory(plan.memory),
        left_out("UNPLACED", plan.unplaced),
        left_out("SKIPPED", plan.skipped),
        isolation(plan.isolation) if plan.isolation else None,
    ):
        if part_ is not None:
            context.show(part_, "")
    context.show(objective(plan.objective))
    for warning in plan.warnings:
        context.warn(warning)
    if plan.blocked:
        context.say(f"blocked: {visible(plan.blocked)}", "bold red")
    if plan.worse:
        context.say(f"worse than now: {visible(plan.worse)}", "bold red")


def heading(plan: "Plan") -> Table:
    request = plan.request
    return facts(
        ("plan", plan.id),
        ("host", f"{plan.host}, as it was at {moment(plan.basis.taken_at)}"),
        ("strategy", request.strategy),
        ("guests", ", ".join(request.guests) or ("none" if request.placement else "all")),
        ("with", ", ".join(request.remedies)),
        ("irq cpus", ", ".join(map("=".join, request.irq_cpus.items()))),
        ("fix", ", ".join(request.fix)),
        ("housekeeping", _set(plan.roles.housekeeping, request, request.housekeeping)),
        ("emulator", _set(plan.roles.emulator, request, request.emulator)),
        ("vCPUs", f"{plan.roles.vcpu or 'none'}{'' if request.vcpus == AUTO else f' (asked for: {request.vcpus})'}"),
        *(("note", note) for note in plan.roles.notes),
        ("rebalance", text.rebalance(plan.rebalance) if plan.rebalance else ""),
        ("allocation", text.optimality(plan.optimality) if plan.optimality else ""),
    )


def _set(cpus: "CpuSet", request: "Request", literal: str) -> str:
    return f"{cpus or 'none'}" if request.placement else f"{cpus or 'none'} (asked for: {literal})"


def changes(plan: "Plan") -> Table | str:
    """vCPUs with the same change share a line."""
    if not plan.changes:
        return f"{'no changes' if plan.unplaced or plan.blocked else 'nothing to do'}: {text.in_place(plan)}"
    drawn = table("OF", "WHAT", "BEFORE", "", "AFTER", "WHY", whole=("BEFORE", "", "AFTER"))
    for group in alike(plan.changes):
        first = group[0]
        before, after = before_and_after(first)
        drawn.add_row(
            first.target.name,
            part(change.target for change in group),
            cpu_cell(before),
            "->",
            cpu_cell(after),
            first.reason,
        )
    return drawn


def moves(moved: Iterable["Move"]) -> Table | None:
    """The guests that move because of new guests, each with its gain."""
    drawn = table("MOVE OF", "GAIN")
    for move in moved:
        drawn.add_row(move.guest.name, text.gain(move))
    return drawn if drawn.rows else None


def memory(guests: Iterable["GuestMemory"]) -> Table | None:
    """By node, and how much of it is remote; None where the kernel gives no numbers."""
    numbers = ("REMOTE NOW", "REMOTE PLANNED")
    drawn = table("MEMORY OF", "BY NODE", *numbers, "HOME NODE", right=numbers, whole=numbers)
    for guest in guests:
        remote = (mib(guest.remote_now_kib), mib(guest.remote_kib))
        home = "none" if guest.home is None else f"node {guest.home}"
        drawn.add_row(guest.target.name, memory_by_node(guest.per_node), *remote, home)
    return drawn if drawn.rows else None


def left_out(title: str, items: Iterable["LeftOut"]) -> Table | None:
    drawn = table(title, "WHY")
    for item in items:
        drawn.add_row(item.label, item.why)
    return drawn if drawn.rows else None


def isolation(needed: "Isolation") -> Table:
    missing = needed.wanted - needed.present
    state = "none of them is" if missing == needed.wanted else f"all but {missing} are" if missing else "all are"
    return facts(
        ("isolated CPUs", f"{needed.wanted}: {state} isolated now"),
        ("kernel arguments", needed.kernel_arguments),
        ("/etc/default/grub", needed.grub_line),
        *(("live partition", command) for command in needed.partition),
        ("live form", needed.partition_note),
    )


def objective(shown: "Objective") -> Table:
    """A term that the strategy does not ask for is dim."""
    numbers = ("NOW", "PLANNED")
    drawn = table("OBJECTIVE (0 is best)", "TIER", *numbers, "UNIT", "WEIGHT", right=("TIER", *numbers, "WEIGHT"))
    for term in shown.terms:
        values = (text.number(term.before), text.number(term.after))
        style = "" if term.asked else "dim"
        drawn.add_row(*cells(term.name, term.tier, *values, term.unit, f"{term.weight:g}", style=style))
    return drawn


def part(targets: Iterable["Target"]) -> str:
    """The parts of one owner's targets of one kind: ``vCPU 0-15``, ``emulator``, ``process 812``."""
    targets = tuple(targets)
    first = targets[0]
    numbers = ranges(target.part for target in targets if target.part is not None)
    return KINDS[first.kind].parts.format(kind=first.kind, owner=first.owner, parts=numbers)


def alike(changes: Iterable["PlannedChange"]) -> list[list["PlannedChange"]]:
    """Neighbours of one owner and kind, with the same CPUs before and after and one reason."""
    groups: list[list[PlannedChange]] = []
    last: tuple[object, ...] = ()
    for change in changes:
        likeness = (change.target.kind, change.target.owner, *before_and_after(change), change.reason)
        if likeness == last and change.target.kind != "process":
            groups[-1].append(change)
        else:
            groups.append([change])
        last = likeness
    return groups
