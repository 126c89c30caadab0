"""A plan as plain text for people, safe on a terminal and in a log.

Names come from guests and processes, whoever started them: what is no printable character is shown as an escape.
"""

from collections.abc import Iterator

from pinner.model.change import Change
from pinner.model.memory import lying, mib
from pinner.model.plan import LeftOut, Plan, Rebalance, Score


def plan(plan: Plan) -> str:
    """The whole plan: sets, every change before -> after and why, what is not placed or touched, warnings, score."""
    return "".join(f"{visible(line)}\n" for line in _lines(plan))


def rebalance(rebalance: Rebalance) -> str:
    """What a rebalance costs and gains, in words."""
    if not rebalance.threads:
        return "no guest would get other CPUs: no change"
    moves = f"{counted(rebalance.guests, 'guest')} ({counted(rebalance.threads, 'thread')}) move"
    gain = f"the score gets {rebalance.gain:.2f} lower" if rebalance.gain > 0 else "the score gets no lower"
    return f"{moves}, {gain}" + ("" if rebalance.taken else ": not worth it, who sits well stays")


def visible(text: str) -> str:
    r"""The text with everything unprintable (line ends, terminal escapes, direction marks) as \x1b, \n, \u202e."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def counted(count: int, what: str) -> str:
    """``1 thread``, ``2 threads``."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def before(change: Change) -> str:
    """Where the change's threads may run now: one list, or each different one; or the state that is changed."""
    if change.states[0]:
        return change.states[0]
    return " | ".join(sorted({str(thread.cpus) for thread in change.before})) or "-"


def _lines(plan: Plan) -> Iterator[str]:
    yield f"plan {plan.id} of host {plan.host}: {plan.request.strategy}"
    yield f"from the snapshot of {plan.basis.taken_at.isoformat(timespec='seconds')} ({plan.basis.snapshot})"
    if plan.blocked:
        yield f"CANNOT BE APPLIED: {plan.blocked}"
    yield ""
    yield from _roles(plan)
    if plan.rebalance:
        yield f"rebalance: {rebalance(plan.rebalance)}"
    yield ""
    yield f"changes: {len(plan.changes) or 'none, everything is in its place'}"
    for change in plan.changes:
        yield f"  {change.target}: {before(change)} -> {change.goal} ({_threads(change)}; {change.reason})"
    for guest in plan.memory:
        remote = f"remote: {mib(guest.remote_now_kib)} now, {mib(guest.remote_kib)} as planned"
        yield f"memory of guest {guest.target.name}: {lying(guest.per_node)}; {remote}"
    yield from _left("not placed", plan.unplaced)
    yield from _left("left alone", plan.skipped)
    yield from (f"warning: {warning}" for warning in plan.warnings)
    yield from _isolation(plan)
    yield ""
    yield f"score (0 is best): {plan.score_before.total:.2f} -> {plan.score_after.total:.2f}"
    yield from _parts(plan.score_before, plan.score_after)


def _roles(plan: Plan) -> Iterator[str]:
    roles = plan.roles
    for name, cpus in (("housekeeping", roles.housekeeping), ("emulator", roles.emulator), ("vCPU", roles.vcpu)):
        yield f"{name} CPUs: {cpus} ({len(cpus)})"
    yield f"all roles together: {roles.cpus} ({len(roles.cpus)})"
    yield from (f"note: {note}" for note in roles.notes)


def _threads(change: Change) -> str:
    if change.states[0]:
        return "a setting of the kernel"
    return counted(len(change.before), "thread")


def _left(title: str, items: tuple[LeftOut, ...]) -> Iterator[str]:
    if items:
        yield f"{title}: {len(items)}"
        yield from (f"  {item.name}: {item.why}" for item in items)


def _isolation(plan: Plan) -> Iterator[str]:
    isolation = plan.isolation
    if isolation is None:
        return
    yield ""
    yield f"isolated CPUs: {isolation.wanted} wanted, {isolation.present or 'none'} of them isolated now"
    yield f"  kernel arguments: {isolation.kernel_arguments}"
    yield f"  /etc/default/grub: {isolation.grub_line}"
    yield f"  live partition: {isolation.partition_note}"
    yield from (f"    {command}" for command in isolation.partition)


def _parts(before: Score, after: Score) -> Iterator[str]:
    for name in sorted({*before.parts, *after.parts}):
        yield f"  {name}: {before.parts.get(name, 0):.2f} -> {after.parts.get(name, 0):.2f}"
