"""A plan's objective (docs/objective.md): its terms before and after, which of them the strategy asks for, and whether
the plan makes them worse. The rise of some terms, such as ``overcommit``, is excused."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pinner.model.change import AffinityChange, PlannedChange, of_vcpus
from pinner.model.cpuset import CpuSet
from pinner.model.plan.objective import COST, LEAST, Objective, Term, compared, rise, value_of
from pinner.model.plan.plan import GuestMemory
from pinner.planning.objective_terms import SPREAD, MeasuredPlacement, ObjectiveMeasure, weights
from pinner.planning.request.context import Context
from pinner.planning.strategies.strategy import Answer


@dataclass(frozen=True, slots=True)
class MeasuredAnswer:
    answer: Answer
    masks: Mapping[int, CpuSet]
    """By id of each placed thread."""
    measured: MeasuredPlacement

    @classmethod
    def of(cls, answer: Answer, measure: ObjectiveMeasure, context: Context) -> "MeasuredAnswer":
        threads = context.threads
        planned = {thread.tid: want.cpus for want in answer.wanted for thread in threads.get(want.target, ())}
        return cls(answer, planned, measure.measured(planned))

    @property
    def values(self) -> dict[str, float]:
        """Without the cost of a change."""
        return {**self.measured.values, "unplaced_guests": float(len(self.answer.unplaced))}


def of_plan(
    measure: ObjectiveMeasure,
    context: Context,
    asked: frozenset[str],
    measured: MeasuredAnswer,
    staying: Answer,
    changes: tuple[PlannedChange, ...],
    memory: Iterable[GuestMemory],
) -> Objective:
    """``staying``: the answer that leaves well placed guests where they are."""
    before = measure.values({}) | {"unplaced_guests": float(_unplaced_before(context, staying))}
    cost = {"moved_threads": float(_moved_threads(changes)), "moved_memory": _moved_mib(changes, memory)}
    if _only_restores(context, changes):
        asked = asked - SPREAD
    return compared(before, measured.values | cost, weights(context.snapshot, context.request), asked)


def between(context: Context, asked: frozenset[str], first: MeasuredAnswer, second: MeasuredAnswer) -> Objective:
    return compared(first.values, second.values, weights(context.snapshot, context.request), asked)


def _unplaced_before(context: Context, staying: Answer) -> int:
    """Without a record, those count that have no place afterwards."""
    if context.placement is None:
        return len(staying.unplaced)
    placed = {each.target.owner for each in context.placement.placed}
    return sum(1 for guest in context.guests if guest.uuid not in placed)


def _moved_threads(changes: Iterable[PlannedChange]) -> int:
    affinities = [change for change in changes if isinstance(change, AffinityChange)]
    return sum([mask.cpus.bits != change.after.bits for change in affinities for mask in change.before])


def _moved_mib(changes: Iterable[PlannedChange], memory: Iterable[GuestMemory]) -> float:
    """Memory that becomes remote, unless it follows the guest."""
    moved = {change.target.owner for change in of_vcpus(changes)}
    return sum(
        each.remote_kib / 1024
        for each in memory
        if each.target.owner in moved and each.home is not None and each.remote_kib > each.remote_now_kib
    )


def _only_restores(context: Context, changes: Iterable[PlannedChange]) -> bool:
    """Another program moved the vCPUs: that is drift, even towards nearer CPUs."""
    affinities = tuple(of_vcpus(changes))
    return bool(affinities) and all(context.places.get(each.target.key) == each.after for each in affinities)


def harm(objective: Objective) -> float:
    """How far the tier rises that a plan makes worse; a rise of excused terms does not count."""
    return _harm(_worse(objective))


def harmed(objective: Objective) -> tuple[Term, ...]:
    """The terms of the tier that a plan makes worse; none where only excused terms rise."""
    return _worse(objective) if harm(objective) >= LEAST else ()


def worsening(objective: Objective) -> str:
    """The tier that a plan makes worse, and its term that rises most; else empty."""
    worse = harmed(objective)
    return _numbers(worse) if worse else ""


def values_by_tier(objective: Objective) -> tuple[float, ...]:
    """The lower, the better: of the plan, by all terms, without the cost of the change."""
    return tuple(round(value_of(tier)[1], 2) for tier in objective.tiers() if tier[0].tier < COST)


def excused_warning(objective: Objective) -> str:
    worse = _worse(objective)
    if not worse or _harm(worse) >= LEAST:
        return ""
    why = " and ".join(_EXCUSED[term.name] for term in worse if term.name in _EXCUSED and term.rise >= LEAST)
    return f"the plan makes the objective worse, {_numbers(worse)}; it may be applied, because {why}"


_EXCUSED: Mapping[str, str] = {
    "unplaced_guests": "only guests that do not fit are left out",
    "overcommit": "vCPUs give up CPUs to housekeeping and emulators",
}
"""Terms whose rise alone is no harm, and why."""


def _numbers(worse: tuple[Term, ...]) -> str:
    most = max(sorted(worse, key=lambda term: term.name), key=lambda term: term.rise)
    before, after = value_of(worse)
    term = f"{most.name} {most.before:.2f} -> {most.after:.2f} {most.unit}"
    return f"tier {most.tier} {before:.2f} -> {after:.2f}, most of it by {term}"


def _worse(objective: Objective) -> tuple[Term, ...]:
    """A tier in which only excused terms rise is the answer, unless a lower tier does harm."""
    excused: tuple[Term, ...] = ()
    for tier in objective.tiers():
        wanted = tuple(term for term in tier if term.asked and term.tier < COST)
        if rise(wanted) <= -LEAST:
            break
        if rise(wanted) >= LEAST:
            if _harm(wanted) >= LEAST:
                return wanted
            excused = excused or wanted
    return excused


def _harm(terms: tuple[Term, ...]) -> float:
    return min(rise(terms), rise(tuple(term for term in terms if term.name not in _EXCUSED)))
