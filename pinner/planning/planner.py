"""Makes a plan from a snapshot and a request: ``settled`` tries sizes of the sets, ``make`` has the flow for one of
them, ``Stages`` its stages. Each returns its result, or raises why there is no plan."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from pinner.model.change import PlannedChange
from pinner.model.cpuset import union
from pinner.model.errors import Invalid, NoFit, NovaConflict
from pinner.model.plan.objective import CONTENTION, Objective
from pinner.model.plan.plan import Basis, GuestMemory, Move, Placement, Plan, Rebalance, Roles, Wanted
from pinner.model.plan.request import AUTO, MANUAL, OPTIMAL, Request
from pinner.model.snapshot import Snapshot
from pinner.planning import curing, sizes, warnings
from pinner.planning.available.exclusions import require_known_guests
from pinner.planning.changes import changes, contested, guests_memory
from pinner.planning.moves import Improver
from pinner.planning.objective import MeasuredAnswer, between, harmed, of_answer, of_plan, values_by_tier, worsening
from pinner.planning.objective_terms import ObjectiveMeasure
from pinner.planning.placement import id_from_placement, id_of
from pinner.planning.request.context import Context
from pinner.planning.request.processes import APART, allocatable_cpus, require_threshold
from pinner.planning.request.requested_pins import require_placeable
from pinner.planning.strategies import per_flavor, rules
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


def settled(
    strategies: Mapping[str, Strategy], context: Context, made: Callable[[Mapping[str, Strategy], Context], Plan]
) -> tuple[Context, Plan]:
    """The plan, with the context of its sets: where the sets that the load needs leave a guest out, smaller ones that
    place more guests. Where the sets make the objective worse, others are tried, the larger ones first, then those with
    less than a step. If the plan stays worse, it says so. Sets that stand stay where leaving them is excused alone."""
    context, plan = _with_new_sets(strategies, context, made)
    resizes = context.roles is None and context.request.strategy not in (OPTIMAL, MANUAL)
    if resizes and plan.unplaced:
        context, plan = _with_room(strategies, context, plan, made)
    worse, unplaced = harmed(plan.objective), len(plan.unplaced)
    if not plan.changes or not (worse or plan.objective.gain < 0):
        return context, plan
    if not worse:
        # What is excused is no reason to leave sets that stand: two plans would undo each other.
        stand = sizes.standing(context) if resizes else ()
        same = _made_of(
            strategies, stand, made, lambda same: same.objective.gain >= 0 and len(same.unplaced) <= unplaced
        )
        return next(same, (context, plan))
    resizes = resizes and worse[0].tier == CONTENTION
    others = _harmless_sizes(strategies, context, plan.roles) if resizes else ()
    none = "; no sizes of the automatic sets make it better" if resizes and AUTO in _sets(context.request) else ""
    stays = context, replace(plan, worse=f"{worsening(plan.objective)}{none}")
    return next(_made_of(strategies, others, made, lambda resized: not harmed(resized.objective)), stays)


def _made_of(
    strategies: Mapping[str, Strategy],
    contexts: Iterable[Context],
    made: Callable[[Mapping[str, Strategy], Context], Plan],
    is_good: Callable[[Plan], bool],
) -> Iterator[tuple[Context, Plan]]:
    for context in contexts:
        with suppress(Invalid, NoFit):
            if is_good(plan := made(strategies, context)):
                yield context, plan


def _harmless_sizes(strategies: Mapping[str, Strategy], context: Context, roles: Roles) -> Iterator[Context]:
    """With other sets than ``roles``, judged by their terms, without whole plans."""
    tried, measure = [roles], Stages.of(context, strategies).measure
    for other, resolved in sizes.others(context):
        if resolved.roles in tried:
            continue
        tried.append(resolved.roles)
        with suppress(Invalid, NoFit):
            if not Stages(other, strategies, measure).is_harmful():
                yield other


def _with_new_sets(
    strategies: Mapping[str, Strategy], context: Context, made: Callable[[Mapping[str, Strategy], Context], Plan]
) -> tuple[Context, Plan]:
    """Recorded sets stay, unless new ones place a guest that cgroups or its definition confine, and unplace none: new
    ones of the CPUs that the record keeps allocatable, else those of a plan without a record."""
    plan = made(strategies, context)
    unplaced = {left.target for left in plan.unplaced}
    confined = {guest.target for guest in context.guests if guest.cpu_limits or guest.restriction}
    if context.roles is not None and confined & unplaced:
        for allocatable in (context.allocatable, allocatable_cpus(context.snapshot, context.request)):
            with suppress(Invalid, NoFit, NovaConflict):
                anew = replace(context, anew=True, allocatable=allocatable)
                other = made(strategies, anew)
                if {left.target for left in other.unplaced} < unplaced and not other.blocked:
                    return anew, other
    return context, plan


def _with_room(
    strategies: Mapping[str, Strategy],
    context: Context,
    plan: Plan,
    made: Callable[[Mapping[str, Strategy], Context], Plan],
) -> tuple[Context, Plan]:
    smaller = sizes.smaller(context, plan.roles)
    plans = _made_of(strategies, smaller, made, lambda other: not harmed(other.objective))
    return min(((context, plan), *plans), key=lambda each: len(each[1].unplaced))


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


@dataclass(frozen=True, slots=True)
class Choice:
    chosen: MeasuredAnswer
    staying: Answer
    """Leaves well placed guests where they are: the chosen answer, except for a rebalance."""
    rebalance: Rebalance | None


@dataclass(frozen=True, slots=True)
class Diff:
    changes: tuple[PlannedChange, ...]
    memory: tuple[GuestMemory, ...]
    objective: Objective


@dataclass(frozen=True, slots=True)
class Stages:
    context: Context
    strategies: Mapping[str, Strategy]
    measure: ObjectiveMeasure

    @classmethod
    def of(cls, context: Context, strategies: Mapping[str, Strategy]) -> "Stages":
        return cls(context, strategies, ObjectiveMeasure.of(context.snapshot, context.request.busy_threshold))

    @property
    def _asked(self) -> frozenset[str]:
        return asked_terms(self.strategies[self.context.request.strategy])

    def place(self) -> MeasuredAnswer:
        """Raises NoFit, and Invalid for an answer that breaks a rule."""
        return self._placed(self.context)

    def choose(self, anew: MeasuredAnswer) -> Choice:
        """A rebalance's answer counts only where it lowers the objective. No guest loses its place to an unplaced one:
        repeated rebalances would swap the two for ever."""
        context = self.context
        if not context.request.rebalance:
            return Choice(anew, anew.answer, None)
        as_now = self._placed(replace(context, request=replace(context.request, rebalance=False)))
        answer, stay = anew.answer, as_now.answer
        cpus_now = {want.target: want.cpus for want in stay.wanted}
        moved = [want.target for want in answer.wanted if cpus_now.get(want.target) != want.cpus]
        objective = between(context, self._asked, as_now, anew)
        unplaced, unplaced_if_staying = ({one.target for one in side.unplaced} for side in (answer, stay))
        taken = unplaced <= unplaced_if_staying and objective.gain > 0
        threads = sum(len(context.threads.get(target, ())) for target in moved)
        guests = len({target.owner for target in moved if target.kind == "vcpu"})
        terms = tuple(term for term in objective.decisive() if term.before != term.after)
        return Choice(anew if taken else as_now, stay, Rebalance(guests, threads, objective.gain, taken, terms))

    def improve(self, measured: MeasuredAnswer, *, repacks: bool) -> tuple[MeasuredAnswer, tuple[Move, ...]]:
        context = self.context
        if context.request.placement:
            return measured, ()  # nothing else moves
        improver = Improver(context, partial(per_flavor.place, strategies=self.strategies), self.measure, self._asked)
        better, moves = improver.repacked(measured) if repacks else improver.improved(measured)
        if moves:
            rules.check(context.request.strategy, better.answer, context)
        return better, moves

    def diff(self, measured: MeasuredAnswer, staying: Answer) -> Diff:
        context, wanted = self.context, measured.answer.wanted
        needed, memory = changes(context, wanted), guests_memory(context.snapshot, wanted)
        return Diff(needed, memory, of_plan(self.measure, context, self._asked, measured, staying, needed, memory))

    def is_harmful(self) -> bool:
        """Of a plan in which no guest moves for another one: a judgement in half the time of such a plan."""
        choice = self.choose(self.place())
        return bool(harmed(of_answer(self.measure, self.context, self._asked, choice.chosen, choice.staying)))

    def warn(self, measured: MeasuredAnswer, diff: Diff) -> tuple[str, ...]:
        about_host = warnings.of_host(self.context, self.strategies, measured.answer.roles)
        return (*about_host, *warnings.of_plan(self.context, measured, diff.objective, diff.changes))

    def block(self, answer: Answer) -> str:
        return self.context.allocatable.blocked or answer.blocked or curing.nova_unknown(self.context.snapshot)

    def _placed(self, context: Context) -> MeasuredAnswer:
        answer = per_flavor.place(context, self.strategies)
        rules.check(context.request.strategy, answer, context)
        return MeasuredAnswer.of(answer, self.measure, self.context)
