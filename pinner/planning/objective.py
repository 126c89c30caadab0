"""A plan's objective (docs/objective.md): its terms before and after, which of them the strategy asks for, and whether
the plan makes them worse.

The rise of ``overcommit``, ``vcpu_overload`` and ``paired_vcpus`` is excused as far as it comes from CPUs that vCPUs
give up because these are not for them: housekeeping's, the emulators', another owner's, or outside the guest's bound.
Of a vCPU's CPUs, both sets count for at most as many as automatic sets would have of them."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType

from pinner.model.change import AffinityChange, PlannedChange, Target, of_vcpus
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid, NoFit
from pinner.model.plan.objective import COST, LEAST, Objective, Term, compared, harm, rise, value_of
from pinner.model.plan.plan import GuestMemory, Roles
from pinner.model.plan.request import AUTO, SETS
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
    def unplaced(self) -> frozenset[Target]:
        return frozenset(left.target for left in self.answer.unplaced)

    @property
    def values(self) -> dict[str, float]:
        return {**self.measured.values, "unplaced_guests": float(_guests(self.answer))}


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
    cost = {"moved_threads": float(_moved_threads(changes)), "moved_memory": _moved_mib(changes, memory)}
    if _only_restores(context, changes):
        asked = asked - SPREAD
    return of_answer(measure, context, asked, measured, staying, cost)


def of_answer(
    measure: ObjectiveMeasure,
    context: Context,
    asked: frozenset[str],
    measured: MeasuredAnswer,
    staying: Answer,
    cost: Mapping[str, float] = MappingProxyType({}),
) -> Objective:
    now, after = measure.values({}), measured.values
    before = now | {"unplaced_guests": float(_unplaced_before(context, staying))}
    if context.request.placement:
        # It takes from vCPUs what no set needs: only a user's decision excuses it.
        excused = dict(after) if _is_recorded(measured.answer, context) else {}
    else:
        kept = kept_cpus(context, measured.answer.roles)
        excused = excused_rises(measure, now, after, measured.masks, kept=kept)
    # A strategy leaves out only guests that do not fit.
    excused |= {"unplaced_guests": after["unplaced_guests"]}
    return compared(before, {**after, **cost}, weights(context.snapshot, context.request), asked, excused)


def between(context: Context, asked: frozenset[str], first: MeasuredAnswer, second: MeasuredAnswer) -> Objective:
    return compared(first.values, second.values, weights(context.snapshot, context.request), asked)


def _unplaced_before(context: Context, staying: Answer) -> int:
    """Without a record, those count that have no place afterwards."""
    if context.placement is None:
        return _guests(staying)
    placed = {each.target.owner for each in context.placement.placed}
    return sum(1 for guest in context.guests if guest.uuid not in placed)


def _guests(answer: Answer) -> int:
    """Those without a place; a placement by hand leaves out parts."""
    return sum(left.target.kind == "guest" for left in answer.unplaced)


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


def _is_recorded(answer: Answer, context: Context) -> bool:
    """All parts of guests have been on these CPUs: the answer only restores what a user has applied."""
    recorded = context.placement.placed if context.placement else ()
    places = {each.target.key: each.cpus for each in recorded if each.was_placed}
    parts = (want for want in answer.wanted if want.target.kind != "process")
    return bool(places) and all(places.get(want.target.key) == want.cpus for want in parts)


_GIVEN_UP = ("vcpu_overload", "overcommit", "paired_vcpus")
"""Terms that rise where vCPUs give up CPUs."""


def excused_rises(
    measure: ObjectiveMeasure,
    before: Mapping[str, float],
    after: Mapping[str, float],
    planned: Mapping[int, CpuSet],
    *,
    kept: Callable[[CpuSet], CpuSet],
    masks_before: Mapping[int, CpuSet] = MappingProxyType({}),
) -> dict[str, float]:
    """The rises if vCPUs only gave up CPUs that are not ``kept``, or outside their bound. ``before``, ``after``:
    values of the terms."""
    if all(after[name] <= before[name] for name in _GIVEN_UP):
        return {}
    values = measure.values(measure.keeping(planned, kept, masks_before))
    return {name: values[name] - before[name] for name in _GIVEN_UP}


def kept_cpus(context: Context, roles: Roles) -> Callable[[CpuSet], CpuSet]:
    """Of a vCPU's CPUs, those whose loss is not excused: those for vCPUs, isolated ones, and those that the two sets
    have beyond the number that automatic sets would have of them, of the sizes that the load needs."""
    for_vcpus, taken = roles.vcpu | context.snapshot.topology.isolated, _of_roles(roles)
    request, allocatable = context.request, context.allocatable
    if all(getattr(request, name) == AUTO for name in SETS) and allocatable.steps is None:
        return for_vcpus.__and__
    request = replace(request, housekeeping=AUTO, emulator=AUTO, vcpus=AUTO)
    needed = replace(context, request=request, allocatable=replace(allocatable, steps=None), placement=None)
    automatic = CpuSet()
    with suppress(Invalid, NoFit):
        others = needed.resolve().roles
        automatic, for_vcpus = _of_roles(others), for_vcpus | (others.vcpu - taken)

    def kept(cpus: CpuSet) -> CpuSet:
        here = cpus & taken
        first = (*(here & automatic), *(here - automatic))
        return cpus & for_vcpus | CpuSet.of(first[len(cpus & automatic) :])

    return kept


def _of_roles(roles: Roles) -> CpuSet:
    return (roles.housekeeping | roles.emulator) - roles.vcpu


def harms(objective: Objective) -> tuple[float, ...]:
    """By tier, of the asked-for terms, without what is excused."""
    tiers = (tuple(term for term in tier if term.asked and term.tier < COST) for tier in objective.tiers())
    return tuple(round(harm(tier), 2) for tier in tiers)


def harmed(objective: Objective) -> tuple[Term, ...]:
    """The asked-for terms of the first tier that changes, without what is excused, if it gets worse; else none."""
    for tier in objective.tiers():
        wanted = tuple(term for term in tier if term.asked and term.tier < COST)
        if abs(harm(wanted)) >= LEAST:
            return wanted if harm(wanted) > 0 else ()
    return ()


def worsening(objective: Objective) -> str:
    """The tier that a plan makes worse, and its term that does most of the harm; else empty."""
    if not (worse := harmed(objective)):
        return ""
    excused = rise(worse) - harm(worse)
    return _numbers(worse, lambda term: term.harm, f", of which {excused:.2f} is excused" if excused >= LEAST else "")


def values_by_tier(objective: Objective) -> tuple[float, ...]:
    """The lower, the better: of the plan, by all terms, without the cost of the change."""
    return tuple(round(value_of(tier)[1], 2) for tier in objective.tiers() if tier[0].tier < COST)


def excused_warning(objective: Objective) -> str:
    tier = objective.decisive()
    if rise(tier) < LEAST or harmed(objective):
        return ""
    excused = (term for term in tier if term.weight * term.excused >= LEAST)
    why = " and ".join(dict.fromkeys(_EXCUSES.get(term.name, _RECORDED) for term in excused))
    return f"the plan makes the objective worse, {_numbers(tier, _excused_rise)}; it may be applied, because {why}"


_RECORDED = "it restores a placement by hand"
_EXCUSES: Mapping[str, str] = {
    "unplaced_guests": "only guests that do not fit are left out",
    **dict.fromkeys(_GIVEN_UP, "vCPUs give up CPUs that are not for them"),
}


def _excused_rise(term: Term) -> float:
    return term.rise - term.harm


def _numbers(tier: tuple[Term, ...], part: Callable[[Term], float], note: str = "") -> str:
    most = max(sorted(tier, key=lambda term: term.name), key=part)
    before, after = value_of(tier)
    term = f"{most.name} {most.before:.2f} -> {most.after:.2f} {most.unit}"
    return f"tier {most.tier} {before:.2f} -> {after:.2f}{note}, most of it by {term}"
