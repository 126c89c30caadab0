"""Makes a plan from a snapshot and a request. Pure: the same snapshot and request always give the same plan."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial

from pinner.model.change import PlannedChange
from pinner.model.errors import Invalid, NoFit
from pinner.model.guest.nova import NovaSets, configured
from pinner.model.plan.objective import Objective
from pinner.model.plan.placement import Placement
from pinner.model.plan.plan import Basis, Plan, Rebalance, Roles
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.available import flavors, realtime, restrictions
from pinner.planning.available.exclusions import require_known_guests, unknown_guests
from pinner.planning.available.growth import is_full
from pinner.planning.available.reservations import contested
from pinner.planning.changes import ordering, worsening
from pinner.planning.changes.diff import changes
from pinner.planning.changes.memory import guests_memory
from pinner.planning.changes.plan_identity import id_from_placement, id_of
from pinner.planning.moves.moves import Improver
from pinner.planning.objective.measure import Measure
from pinner.planning.objective.of_plan import MeasuredAnswer, asked_terms, between, of_plan
from pinner.planning.request import core_classes
from pinner.planning.request.context import Context
from pinner.planning.request.processes import moves_processes, moving, require_threshold
from pinner.planning.settings.fixes import curing, with_remedies
from pinner.planning.strategies import per_flavor, rules
from pinner.planning.strategies.strategy import Answer, Strategy, installed, require_known

EVERYWHERE = (
    "strategy",
    "excluded_guests",
    "excluded_processes",
    "nova_emulators",
    "minimum_cores",
    "rebalance",
    "with_processes",
    "weights",
    "moves",
    "remedies",
    "fix",
)
"""The fields of a request that every plan reads, whatever the strategy."""


def plan(
    snapshot: Snapshot,
    snapshot_id: str,
    request: Request,
    strategies: Mapping[str, Strategy] | None = None,
) -> Plan:
    """The plan of a request for a host.

    ``snapshot_id`` is the snapshot's content hash, ``strategies`` the available strategies by name (None: the
    installed ones). If nothing is to be done, the plan has no changes. Raises NotFound for an unknown strategy, guest
    or process; Invalid for a parameter that this host cannot have; NoFit where no CPU is left for vCPUs.
    """
    require_known(request.strategy, known := installed() if strategies is None else strategies)
    return build(known, Context.of(snapshot, request), snapshot_id, id_of(snapshot_id, request))


def plan_from_placement(snapshot: Snapshot, snapshot_id: str, request: Request, placement: Placement | None) -> Plan:
    """The plan that makes the host match the request, starting from the recorded placement of the same request.

    The recorded CPUs of roles and guests stay, and recorded daemons are placed again without being measured. The
    strategy places a new guest; if there is no room, the strategy moves at most two other guests. Without a recorded
    placement (None) the plan is made like any other. Guests and processes that the request names need not exist.
    Raises NotFound for an unknown strategy; Invalid and NoFit like ``plan``.
    """
    context = Context.of(snapshot, request, placement, lenient=True)
    strategies = installed()
    require_known(request.strategy, strategies)
    return build(strategies, context, snapshot_id, id_from_placement(snapshot_id, request, placement, ()))


def repack(snapshot: Snapshot, snapshot_id: str, request: Request, placement: Placement) -> Plan:
    """The plan of ``plan_from_placement``, and then moves of guest after guest to CPUs that are free then, as long as
    that lowers the objective. Raises like ``plan_from_placement``."""
    context = Context.of(snapshot, request, placement, lenient=True)
    strategies = installed()
    require_known(request.strategy, strategies)
    name = id_from_placement(snapshot_id, request, placement, ("repack",))
    return build(strategies, context, snapshot_id, name, repacks=True)


def require_possible(snapshot: Snapshot, request: Request) -> None:
    """Raises an error where the host can never follow a policy with this request.

    NotFound: the policy names an unknown strategy, or a guest that libvirt does not know. A guest that comes later, for
    instance by a migration, is named by its UUID. Invalid and NovaConflict: the policy names CPUs that the host lacks
    or that Nova owns, or a threshold that no process can exceed. A policy is possible if it only leaves guests unplaced
    now, or names guests and processes that do not run now: these start and stop.
    """
    require_known_guests(snapshot, request.guests, by_uuid=True)
    require_threshold(snapshot, request)
    with suppress(NoFit):
        plan_from_placement(snapshot, "", request, None)


def build(
    strategies: Mapping[str, Strategy], context: Context, snapshot_id: str, name: str, *, repacks: bool = False
) -> Plan:
    """The plan with the id ``name``, made from the answer of the request's strategy. Raises like ``plan``.

    ``strategies`` has the request's strategy, and those that flavors may request. ``repacks``: guests also move without
    a new guest.
    """
    snapshot, request = context.snapshot, context.request
    if request.fix:
        return curing(context, snapshot_id, name, _nova_unknown(snapshot))
    measure, asked = Measure.of(snapshot, request.busy_threshold), asked_terms(strategies[request.strategy])
    found, staying, rebalance = _answer(strategies, context, measure)
    improver = Improver(context, partial(per_flavor.place, strategies=strategies), measure, asked)
    found, moves = improver.repacked(found) if repacks else improver.improved(found)
    answer = found.answer
    if moves:
        rules.check(request.strategy, answer, context)
    needed, memory = changes(context, answer.wanted), guests_memory(snapshot, answer.wanted)
    objective = of_plan(measure, context, asked, found, staying, needed, memory)
    made = Plan(
        id=name,
        host=snapshot.host,
        request=request,
        basis=Basis(snapshot_id, snapshot.taken_at, snapshot.topology.fingerprint, snapshot.boot),
        roles=answer.roles,
        wanted=answer.wanted,
        changes=needed,
        unplaced=answer.unplaced,
        skipped=context.skipped,
        warnings=(*_warnings(context, strategies, answer.roles), *_plan_warnings(context, found, objective, needed)),
        objective=objective,
        isolation=answer.isolation,
        blocked=context.allocatable.blocked or answer.blocked or _nova_unknown(snapshot),
        memory=memory,
        rebalance=rebalance,
        moves=moves,
        optimality=answer.optimality,
    )
    return with_remedies(replace(made, contested=contested(made, snapshot)), context)


def _answer(
    strategies: Mapping[str, Strategy], context: Context, measure: Measure
) -> tuple[MeasuredAnswer, Answer, Rebalance | None]:
    """The strategy's answer, and the answer that leaves well placed guests where they are: the same one, except for a
    rebalance. A rebalance takes the latter, unless placing all guests anew lowers the objective.

    No guest loses its place to an unplaced guest: otherwise repeated rebalances would swap the two for ever.
    """
    answer = _checked(strategies, context)
    anew = MeasuredAnswer.of(answer, measure, context)
    if not context.request.rebalance:
        return anew, answer, None
    stay = _checked(strategies, replace(context, request=replace(context.request, rebalance=False)))
    as_now = MeasuredAnswer.of(stay, measure, context)
    now = {want.target: want.cpus for want in stay.wanted}
    moved = [want.target for want in answer.wanted if now.get(want.target) != want.cpus]
    objective = between(context, asked_terms(strategies[context.request.strategy]), as_now, anew)
    unplaced, unplaced_if_staying = ({left.target for left in each.unplaced} for each in (answer, stay))
    taken = unplaced <= unplaced_if_staying and objective.gain > 0
    threads = sum(len(context.threads.get(target, ())) for target in moved)
    guests = len({target.owner for target in moved if target.kind == "vcpu"})
    terms = tuple(term for term in objective.decisive() if term.before != term.after)
    return (anew if taken else as_now), stay, Rebalance(guests, threads, objective.gain, taken, terms)


def _checked(strategies: Mapping[str, Strategy], context: Context) -> Answer:
    answer = per_flavor.place(context, strategies)
    rules.check(context.request.strategy, answer, context)
    return answer


def _nova_unknown(snapshot: Snapshot) -> str:
    """Why pinner cannot determine which CPUs Nova owns; empty if it can."""
    try:
        novas = [guest.name for guest in snapshot.guests if guest.nova is not None]
        configured(NovaSets(snapshot.dedicated, snapshot.shared), snapshot.nova, novas)
    except Invalid as error:
        return (
            f"pinner cannot determine which CPUs Nova owns: {error}; correct that, or set cpu_dedicated_set and "
            "cpu_shared_set in [nova] of pinner.conf"
        )
    return ""


def _warnings(context: Context, strategies: Mapping[str, Strategy], roles: Roles) -> Iterator[str]:
    """Warnings about the host or the request that do not depend on the strategy."""
    snapshot, request = context.snapshot, context.request
    strategy = strategies[request.strategy]
    yield from snapshot.warnings
    if not snapshot.sample_seconds:
        yield "CPU use was not measured (sample_seconds is 0): no process counts as busy"
    if (
        missing := context.allocatable.online
        - context.allocatable.isolated
        - context.allocatable.partitioned
        - snapshot.baseline
    ):
        yield (
            f"process 1 may not run on CPUs {missing}: systemd's CPUAffinity= or a cpuset restricts every process that "
            "it starts, and may remove CPUs from threads that this plan places"
        )
    for restriction in context.restricted_since():
        yield (
            f"the owner of {restriction.owner} restricted it to CPUs {restriction.cpus}, which the recorded placement "
            "uses; plan a rebalance to free these CPUs for it"
        )
    yield from restrictions.warnings(context.allocatable)
    for guest in snapshot.guests:
        yield from flavors.warnings(guest, strategies)
    for name in unknown_guests(snapshot, request.excluded_guests):
        yield f"excluded_guests names {name!r}: libvirt knows no such guest now"
    if request.with_processes and not request.guests:
        yield "with_processes has no effect: a request for all guests moves the host's busy processes anyway"
    if not moves_processes(request) and (busy := _busy_outside(context, roles)):
        yield (
            f"the request names guests: busy processes outside the housekeeping CPUs ({busy}) stay where they are; "
            "with_processes (--with-processes) moves them too"
        )
    for field in fields(Request):
        unread = field.name not in (*EVERYWHERE, *strategy.parameters)
        if unread and getattr(request, field.name) != field.default:
            value = getattr(request, field.name)
            yield f"{field.name} {value!r} has no effect: the strategy {strategy.name} does not use it"


def _plan_warnings(
    context: Context, found: MeasuredAnswer, objective: Objective, needed: tuple[PlannedChange, ...]
) -> Iterator[str]:
    """The warnings of the answer, and those about its CPUs, its objective and its changes."""
    snapshot, answer = context.snapshot, found.answer
    yield from answer.warnings
    yield from _load_warnings(context, answer.roles)
    yield from realtime.warnings(snapshot, context.request, answer.roles, found.masks)
    yield from core_classes.warnings(snapshot.topology, answer.wanted)
    yield from filter(None, [worsening.warning(objective, answer.roles), ordering.warning(needed)])


def _busy_outside(context: Context, roles: Roles) -> int:
    """The number of processes that only a plan with processes moves."""
    every = moving(context.snapshot, replace(context.request, with_processes=True))
    ours = {move.target for move in context.moving}
    others = (move for move in every if move.target not in ours)
    return sum(1 for move in others if any(not thread.affinity <= roles.housekeeping for thread in move.threads))


def _load_warnings(context: Context, roles: Roles) -> Iterator[str]:
    """Warnings about sets that are too small for the measured load of their role."""
    demand, recorded = context.allocatable.demand, context.roles is not None
    sets = (
        ("busy host processes", demand.housekeeping, "housekeeping", roles.housekeeping),
        ("QEMU's own threads", demand.emulator, "emulator", roles.emulator),
    )
    for threads, load, role, cpus in sets:
        if is_full(load, cpus):
            hint = "; plan a rebalance to let the set grow" if recorded else ""
            yield (
                f"overload: {threads} use {load * 100:.0f} % of one CPU, and the {role} set {cpus} has "
                f"{len(cpus)} CPUs{hint}"
            )
