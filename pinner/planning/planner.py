"""Makes a plan from a snapshot and a request: ``settled`` tries sizes of the sets, ``make`` has the flow for one of
them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial

from pinner.model.change import Target
from pinner.model.cpuset import union
from pinner.model.errors import Invalid, NoFit, NovaConflict
from pinner.model.plan.objective import CONTENTION
from pinner.model.plan.plan import Basis, Placement, Plan, Roles, Wanted
from pinner.model.plan.request import AUTO, MANUAL, OPTIMAL, Request
from pinner.model.snapshot import Snapshot
from pinner.planning import curing
from pinner.planning.available import slices
from pinner.planning.available.exclusions import require_known_guests
from pinner.planning.available.roles import Resolved
from pinner.planning.changes import contested
from pinner.planning.objective import MeasuredAnswer, between, harmed, harms, values_by_tier, worsening
from pinner.planning.objective_terms import SPREAD
from pinner.planning.placement import id_from_placement, id_of
from pinner.planning.request.context import Context
from pinner.planning.request.processes import APART, allocatable_cpus, require_threshold
from pinner.planning.request.requested_pins import require_placeable
from pinner.planning.stages import Stages
from pinner.planning.strategies import per_flavor
from pinner.planning.strategies.strategy import Answer, Strategy, asked_terms, installed, require_known


def plan(
    snapshot: Snapshot,
    snapshot_id: str,
    request: Request,
    strategies: Mapping[str, Strategy] | None = None,
) -> Plan:
    """``snapshot_id`` is the snapshot's content hash; ``strategies`` None: the installed ones. Raises NotFound for an
    unknown strategy, guest or process; Invalid for a parameter that this host cannot have; NoFit where no CPU is left
    for vCPUs. A plan that makes the objective worse names the best alternative."""
    require_known(request.strategy, known := installed() if strategies is None else strategies)
    context = Context.of(snapshot, request)
    require_placeable(context)
    made = build(known, context, snapshot_id, id_of(snapshot_id, request))
    if not made.worse:
        return made
    return replace(made, worse=f"{made.worse}; {_best_alternative(known, context, len(made.unplaced))}")


def plan_from_placement(snapshot: Snapshot, snapshot_id: str, request: Request, placement: Placement | None) -> Plan:
    """The plan that makes the host match the request, from the recorded placement of the same request. Recorded CPUs
    stay, except those of guests that move for a new one, and recorded daemons are placed without being measured. Named
    guests and processes need not exist, and a pin by hand that breaks a rule is left out. Raises NotFound for an
    unknown strategy; Invalid and NoFit like ``plan``."""
    context = Context.of(snapshot, request, placement, lenient=True)
    strategies = installed()
    require_known(request.strategy, strategies)
    return build(strategies, context, snapshot_id, id_from_placement(snapshot_id, request, placement, ()))


def repack(snapshot: Snapshot, snapshot_id: str, request: Request, placement: Placement) -> Plan:
    context = Context.of(snapshot, request, placement, lenient=True)
    strategies = installed()
    require_known(request.strategy, strategies)
    name = id_from_placement(snapshot_id, request, placement, ("repack",))
    return build(strategies, context, snapshot_id, name, repacks=True)


def require_possible(snapshot: Snapshot, request: Request) -> None:
    """Raises NotFound, Invalid or NovaConflict where the host can never follow a policy with this request. Unplaced
    guests, and named processes that do not run, are no error. A guest that comes later is named by its UUID."""
    require_known_guests(snapshot, request.guests, by_uuid=True)
    require_threshold(snapshot, request)
    require_known(request.strategy, strategies := installed())
    with suppress(NoFit):
        build(strategies, replace(Context.of(snapshot, request, lenient=True), lenient=False), "", "")


def build(
    strategies: Mapping[str, Strategy], context: Context, snapshot_id: str, name: str, *, repacks: bool = False
) -> Plan:
    """``strategies`` has the request's, and those that flavors may ask for. ``repacks``: guests also move without a new
    one."""
    return settled(strategies, context, partial(make, snapshot_id=snapshot_id, name=name, repacks=repacks))[1]


_Make = Callable[[Mapping[str, Strategy], Context], Plan]
_Settled = tuple[Context, Plan]


def settled(strategies: Mapping[str, Strategy], context: Context, made: _Make) -> _Settled:
    """The plan, with the context of its sets: where the sets that the load needs leave a guest out, smaller ones that
    place more guests. Where the sets make the objective worse, others are tried, the larger ones first, then those with
    less than a step. If the plan stays worse, it says so. Sets that stand stay where leaving them only makes the
    objective worse, or leaves out a guest that has its place."""
    context, plan = _with_new_sets(strategies, _sparing(strategies, context), made)
    if context.roles is not None or context.request.strategy in (OPTIMAL, MANUAL):
        return context, _judged(plan)
    sizes, unplaced, more = Sizes(context), len(plan.unplaced), list[_Settled]()
    if unplaced:
        stand = sizes.standing() if plan.changes else ()
        if stands := next(_made_of(strategies, stand, made, partial(_keeps, plan)), None):
            return stands
        more = _with_room(strategies, sizes, plan, made)
        context, plan = next((each for each in more if not harmed(each[1].objective)), (context, plan))
    worse, unplaced = harmed(plan.objective), len(plan.unplaced)
    if not plan.changes or not (worse or plan.objective.gain < 0):
        return context, plan

    def is_harmless(other: Plan) -> bool:
        return not harmed(other.objective)

    def may_stay(same: Plan) -> bool:
        return is_harmless(same) and same.objective.gain >= 0 and len(same.unplaced) <= unplaced

    if not worse:
        # What is excused is no reason to leave sets that stand: two plans would undo each other.
        return next(_made_of(strategies, sizes.standing(), made, may_stay), (context, plan))
    if worse[0].tier != CONTENTION:
        return context, _judged(plan)
    others = _harmless_sizes(strategies, sizes, plan.roles)
    none = "; no sizes of the automatic sets make it better" if AUTO in _sets(context.request) else ""
    # Applied in spite of that, a plan would be followed by one that places more guests and makes nothing worse.
    less = (each for each in more if harms(each[1].objective) <= harms(plan.objective))
    context, plan = next(less, (context, plan))
    return _fewest(_made_of(strategies, others, made, is_harmless), unplaced, (context, _judged(plan, none)))


def _fewest(plans: Iterable[_Settled], unplaced: int, stays: _Settled) -> _Settled:
    """The first that leaves out no more guests than ``unplaced``, else the one that leaves out fewest; ``stays`` where
    there is none."""
    others: list[_Settled] = []
    for each in plans:
        if len(each[1].unplaced) <= unplaced:
            return each
        others.append(each)
    return min(others, key=lambda each: len(each[1].unplaced), default=stays)


def _sparing(strategies: Mapping[str, Strategy], context: Context) -> Context:
    """Beside a list of housekeeping CPUs, an automatic emulator set has none of one of two nodes where guests that need
    all the other CPUs of it are nearer to their memory then, or one more has a place."""
    request, asked = context.request, asked_terms(strategies[context.request.strategy])
    if context.roles is not None or request.emulator != AUTO or request.housekeeping == AUTO or not asked & SPREAD:
        return context
    if not (others := [*sparing(context)]):
        return context
    with suppress(Invalid, NoFit):
        stages = Stages.of(context, strategies)
        every = stages, stages.place()
        if not all(other.allocatable.spared & every[1].answer.roles.emulator for other in others):
            return context
        spared = (replace(stages, context=other) for other in others)
        tried = [every, *((other, other.place()) for other in spared)]
        best, *rest = sorted(tried, key=lambda each: _moves(*each))  # of equal ones, sets that stand stay
        for other in rest:
            objective = between(context, asked, best[1], other[1])
            is_nearer = objective.gain > 0 and objective.decisive()[0].tier < CONTENTION
            if is_nearer and other[1].unplaced <= best[1].unplaced and not other[0].is_harmful(other[1]):
                best = other
        return best[0].context
    return context


def _moves(stages: Stages, measured: MeasuredAnswer) -> bool:
    threads = (thread for threads in stages.context.threads.values() for thread in threads)
    return any(measured.masks.get(thread.tid, thread.affinity) != thread.affinity for thread in threads)


def _judged(plan: Plan, none: str = "") -> Plan:
    worse = worsening(plan.objective) if plan.changes else ""
    return replace(plan, worse=f"{worse}{none}") if worse else plan


def _made_of(
    strategies: Mapping[str, Strategy], contexts: Iterable[Context], made: _Make, is_good: Callable[[Plan], bool]
) -> Iterator[_Settled]:
    for context in contexts:
        with suppress(Invalid, NoFit):
            if is_good(plan := made(strategies, context)):
                yield context, plan


def _harmless_sizes(strategies: Mapping[str, Strategy], sizes: "Sizes", roles: Roles) -> Iterator[Context]:
    """With other sets than ``roles``, judged by their terms, without whole plans."""
    measure = Stages.of(sizes.context, strategies).measure
    for other, resolved in sizes.others:
        with suppress(Invalid, NoFit):
            if resolved.roles != roles and not Stages(other, strategies, measure).is_harmful():
                yield other


def _with_new_sets(strategies: Mapping[str, Strategy], context: Context, made: _Make) -> _Settled:
    """Recorded sets stay, unless new ones place a guest that cgroups or its definition confine, and unplace none: new
    ones of the CPUs that the record keeps allocatable, else those of a plan without a record."""
    plan = made(strategies, context)
    unplaced = {left.target for left in plan.unplaced}
    confined = {guest.target for guest in context.guests if guest.uuid in context.bounds}
    if context.roles is not None and confined & unplaced:
        for allocatable in (context.allocatable, allocatable_cpus(context.snapshot, context.request)):
            with suppress(Invalid, NoFit, NovaConflict):
                anew = replace(context, anew=True, allocatable=allocatable)
                other = made(strategies, anew)
                if {left.target for left in other.unplaced} < unplaced and not other.blocked:
                    return anew, other
    return context, plan


def _with_room(strategies: Mapping[str, Strategy], sizes: "Sizes", plan: Plan, made: _Make) -> list[_Settled]:
    """With smaller sets that place more guests, most first. A whole plan costs much: none is made where the sets that
    leave vCPUs most CPUs place none of the guests without a place, none after one that places as many as these."""
    unplaced, smaller = _left_out(plan), sizes.smaller(plan.roles)
    least = _unplaced_of_widest(strategies, smaller)
    found: list[_Settled] = []
    if unplaced <= least:
        return found
    contexts = (context for context, _ in smaller)
    for each in _made_of(strategies, contexts, made, lambda other: len(other.unplaced) < len(unplaced)):
        found.append(each)
        if len(each[1].unplaced) <= len(least) and not harmed(each[1].objective):
            break
    return sorted(found, key=lambda each: len(each[1].unplaced))


def _keeps(plan: Plan, same: Plan) -> bool:
    """Nothing moves, and ``plan`` leaves out a guest that has its place."""
    return not same.changes and len(same.unplaced) <= len(plan.unplaced) and not _left_out(plan) <= _left_out(same)


def _left_out(plan: Plan) -> set[Target]:
    return {left.target for left in plan.unplaced}


def _unplaced_of_widest(
    strategies: Mapping[str, Strategy], sizes: Collection[tuple[Context, Resolved]]
) -> frozenset[Target]:
    """Of the sets whose vCPUs have the CPUs of all the others'; empty where none are like that."""
    every = union(resolved.roles.vcpu for _, resolved in sizes)
    for context, resolved in sizes:
        if resolved.roles.vcpu == every:
            with suppress(Invalid, NoFit):
                return frozenset(left.target for left in per_flavor.place(context, strategies).unplaced)
    return frozenset()


def _sets(request: Request) -> tuple[str, str]:
    return request.housekeeping, request.emulator


ALTERNATIVES = ("shared-pool", "numa-local", "isolated")
"""Strategies to name where another one's plan makes the objective worse."""


def _best_alternative(strategies: Mapping[str, Strategy], context: Context, unplaced: int) -> str:
    """Not worse by the terms that it asks for itself, and by those that the request asks for. It leaves at most
    ``unplaced`` guests out."""
    asked, plans = asked_terms(strategies[context.request.strategy]), dict[str, Plan]()
    for options, request in _alternatives(strategies, context):
        with suppress(Invalid, NoFit, NovaConflict):
            plans[options] = make(strategies, Context.of(context.snapshot, request, lenient=True))
    applicable = {
        options: plan
        for options, plan in plans.items()
        if plan.changes and not plan.blocked and len(plan.unplaced) <= unplaced
    }
    better = {options: plan for options, plan in applicable.items() if not harmed(plan.objective.asking(asked))}
    best = min(better, key=lambda options: values_by_tier(better[options].objective), default="")
    return f"plan with {best}" if best else "leave the host as it is"


def _alternatives(strategies: Mapping[str, Strategy], context: Context) -> Iterator[tuple[str, Request]]:
    request = replace(context.request, remedies=(), placement=())
    if _sets(request) != (AUTO, AUTO):
        yield "--housekeeping auto --emulator auto", replace(request, housekeeping=AUTO, emulator=AUTO)
    if request.vcpus != AUTO:
        yield "--vcpus auto", replace(request, vcpus=AUTO)
    for name in ALTERNATIVES:
        if name in strategies and name != request.strategy:
            yield f"--strategy {name}", replace(request, strategy=name)


def make(
    strategies: Mapping[str, Strategy],
    context: Context,
    snapshot_id: str = "",
    name: str = "",
    *,
    repacks: bool = False,
) -> Plan:
    """Not judged: it may make the objective worse."""
    snapshot = context.snapshot
    if context.request.fix:
        return curing.make(context, snapshot_id, name)
    stages = Stages.of(context, strategies)
    choice = stages.choose(stages.place())
    measured, moves = stages.improve(choice.chosen, repacks=repacks)
    answer = _telling(measured.answer, context)
    measured = replace(measured, answer=answer)
    diff = stages.diff(measured, choice.staying)
    plan = Plan(
        id=name,
        host=snapshot.host,
        request=context.request,
        basis=_basis(snapshot, snapshot_id),
        roles=answer.roles,
        wanted=answer.wanted,
        changes=diff.changes,
        unplaced=answer.unplaced,
        skipped=context.skipped,
        warnings=stages.warn(measured, diff),
        objective=diff.objective,
        isolation=answer.isolation,
        blocked=stages.block(answer),
        memory=diff.memory,
        rebalance=choice.rebalance,
        moves=moves,
        optimality=answer.optimality,
    )
    return curing.with_requested(replace(plan, contested=contested(plan, snapshot)), context)


def _telling(answer: Answer, context: Context) -> Answer:
    """The reasons of processes say where vCPUs use their CPUs, too, those of skipped and unplaced guests among them."""
    placed = {want.target: want.cpus for want in answer.wanted if want.target.kind == "vcpu"}
    guests = context.snapshot.guests
    now = {guest.vcpu_targets[vcpu]: mask for guest in guests for vcpu, mask in guest.vcpu_affinities.items()}
    vcpus = union((now | placed).values())

    def told(want: Wanted) -> Wanted:
        if want.target.kind != "process" or not (shared := want.cpus & vcpus):
            return want
        return replace(want, reason=want.reason.replace(APART, f"where vCPUs use CPUs {shared} too"))

    return replace(answer, wanted=tuple(map(told, answer.wanted)))


def _basis(snapshot: Snapshot, snapshot_id: str) -> Basis:
    limits = {guest.uuid: guest.cpu_limits for guest in snapshot.guests if guest.cpu_limits}
    return Basis(snapshot_id, snapshot.taken_at, snapshot.topology.fingerprint, snapshot.boot, limits)


@dataclass(frozen=True)
class Sizes:
    """Other sizes of the automatic sets than the load needs (docs/strategies.md). Without slots, so that the sets are
    resolved once."""

    context: Context

    @cached_property
    def others(self) -> tuple[tuple[Context, Resolved], ...]:
        """The larger ones first, then those with less than a step; of equal sets one."""
        context, found = self.context, dict[Roles, tuple[Context, Resolved]]()
        for steps in sorted(slices.every_size(context.request), key=lambda steps: (0 in steps, sum(steps))):
            other = replace(context, allocatable=replace(context.allocatable, steps=steps))
            with suppress(Invalid, NoFit):
                resolved = other.resolve(isolating=other.allocatable.isolating, apart=other.allocatable.apart)
                found.setdefault(resolved.roles, (other, resolved))
        return tuple(found.values())

    def standing(self) -> Iterator[Context]:
        """Of sets on which the host's daemons and QEMU's own threads are now."""
        return (other for other, resolved in self.others if _stands(other, resolved))

    def smaller(self, roles: Roles) -> list[tuple[Context, Resolved]]:
        """That hold their load and leave vCPUs more CPUs, the largest sets first; none where vCPUs get isolated CPUs:
        sets beside live partitions follow the number of guests."""
        if self.context.allocatable.isolating:
            return []
        now, found = self.context.allocatable.demand, list[tuple[Context, Resolved]]()
        for other, resolved in reversed(self.others):
            sets = resolved.roles
            if len(sets.vcpu) > len(roles.vcpu) and all(
                len(after) <= len(before) and not slices.is_full(load, after)
                for load, before, after in (
                    (now.housekeeping, roles.housekeeping, sets.housekeeping),
                    (now.emulator, roles.emulator, sets.emulator),
                )
            ):
                found.append((other, resolved))
        return found


def _stands(context: Context, resolved: Resolved) -> bool:
    now, emulators = context.allocatable.demand, (resolved.roles.emulator, *resolved.emulator_on.values())
    daemons = not now.housekeeping_now or resolved.roles.housekeeping in now.housekeeping_now
    # Each guest with a live partition has QEMU's own threads on one CPU of the set.
    alone = context.allocatable.isolating and any(
        len(mask) == 1 and mask <= resolved.roles.emulator for mask, _ in now.emulator_now
    )
    return daemons and (alone or any(map(now.has_emulators, emulators)))


def sparing(context: Context) -> Iterator[Context]:
    """With an automatic emulator set on one of two nodes. Of more nodes, each plan would find others to leave out: the
    guests are elsewhere then; and vCPUs on isolated CPUs need none of these."""
    allocatable = context.allocatable
    for cpus in allocatable.nodes.values() if len(allocatable.nodes) == 2 and not allocatable.isolating else ():
        yield replace(context, allocatable=replace(allocatable, spared=cpus))
