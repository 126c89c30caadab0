"""Makes a plan from a snapshot and a request: ``build`` has the whole flow, ``Stages`` its stages. Each returns its
result, or raises why there is no plan."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from math import fsum

from pinner.model.change import PlannedChange
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid, NoFit
from pinner.model.guest.guest import Guest
from pinner.model.guest.nova import NovaSets, configured
from pinner.model.machine.process import Thread
from pinner.model.plan.objective import Objective
from pinner.model.plan.plan import Basis, GuestMemory, Move, Placement, Plan, Rebalance, Roles
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.available import exclusions, restrictions
from pinner.planning.available.exclusions import require_known_guests, unknown_guests
from pinner.planning.available.reservations import contested
from pinner.planning.available.slices import is_full
from pinner.planning.changes import changes, exchange_warning, guests_memory
from pinner.planning.moves import Improver
from pinner.planning.objective import (
    MeasuredAnswer,
    ObjectiveMeasure,
    asked_terms,
    between,
    of_plan,
    worsening_warning,
)
from pinner.planning.plan_identity import id_from_placement, id_of
from pinner.planning.request import core_classes
from pinner.planning.request.context import Context
from pinner.planning.request.processes import moves_processes, moving, require_threshold
from pinner.planning.settings.fixes import curing, with_requested
from pinner.planning.strategies import per_flavor, rules
from pinner.planning.strategies.strategy import Answer, Strategy, installed, require_known


def plan(
    snapshot: Snapshot,
    snapshot_id: str,
    request: Request,
    strategies: Mapping[str, Strategy] | None = None,
) -> Plan:
    """``snapshot_id`` is the snapshot's content hash; ``strategies`` None: the installed ones. Raises NotFound for an
    unknown strategy, guest or process; Invalid for a parameter that this host cannot have; NoFit where no CPU is left
    for vCPUs."""
    require_known(request.strategy, known := installed() if strategies is None else strategies)
    return build(known, Context.of(snapshot, request), snapshot_id, id_of(snapshot_id, request))


def plan_from_placement(snapshot: Snapshot, snapshot_id: str, request: Request, placement: Placement | None) -> Plan:
    """The plan that makes the host match the request, from the recorded placement of the same request.

    Recorded CPUs stay, and recorded daemons are placed without being measured. A new guest moves at most two others.
    Named guests and processes need not exist. Raises NotFound for an unknown strategy; Invalid and NoFit like ``plan``.
    """
    context = Context.of(snapshot, request, placement, lenient=True)
    strategies = installed()
    require_known(request.strategy, strategies)
    return build(strategies, context, snapshot_id, id_from_placement(snapshot_id, request, placement, ()))


def repack(snapshot: Snapshot, snapshot_id: str, request: Request, placement: Placement) -> Plan:
    """``plan_from_placement``, with moves of guest after guest to free CPUs as long as that lowers the objective."""
    context = Context.of(snapshot, request, placement, lenient=True)
    strategies = installed()
    require_known(request.strategy, strategies)
    name = id_from_placement(snapshot_id, request, placement, ("repack",))
    return build(strategies, context, snapshot_id, name, repacks=True)


def require_possible(snapshot: Snapshot, request: Request) -> None:
    """Raises NotFound, Invalid or NovaConflict where the host can never follow a policy with this request.

    Unplaced guests, and named processes that do not run now, are no error. A guest that comes later is named by its
    UUID.
    """
    require_known_guests(snapshot, request.guests, by_uuid=True)
    require_threshold(snapshot, request)
    with suppress(NoFit):
        plan_from_placement(snapshot, "", request, None)


def build(
    strategies: Mapping[str, Strategy], context: Context, snapshot_id: str, name: str, *, repacks: bool = False
) -> Plan:
    """``strategies`` has the request's, and those that flavors may ask for. ``repacks``: guests also move without a new
    one."""
    snapshot, request = context.snapshot, context.request
    if request.fix:
        return curing(context, snapshot_id, name, nova_unknown(snapshot))
    stages = Stages.of(context, strategies)
    choice = stages.choose(stages.place())
    measured, moves = stages.improve(choice.chosen, repacks=repacks)
    answer = measured.answer
    diff = stages.diff(measured, choice.staying)
    plan = Plan(
        id=name,
        host=snapshot.host,
        request=request,
        basis=Basis(snapshot_id, snapshot.taken_at, snapshot.topology.fingerprint, snapshot.boot),
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
    return with_requested(replace(plan, contested=contested(plan, snapshot)), context)


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
        """A rebalance's answer counts only where it lowers the objective.

        No guest loses its place to an unplaced one: repeated rebalances would swap the two for ever.
        """
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
        improver = Improver(context, partial(per_flavor.place, strategies=self.strategies), self.measure, self._asked)
        better, moves = improver.repacked(measured) if repacks else improver.improved(measured)
        if moves:
            rules.check(context.request.strategy, better.answer, context)
        return better, moves

    def diff(self, measured: MeasuredAnswer, staying: Answer) -> Diff:
        context, wanted = self.context, measured.answer.wanted
        needed, memory = changes(context, wanted), guests_memory(context.snapshot, wanted)
        return Diff(needed, memory, of_plan(self.measure, context, self._asked, measured, staying, needed, memory))

    def warn(self, measured: MeasuredAnswer, diff: Diff) -> tuple[str, ...]:
        about_host = host_warnings(self.context, self.strategies, measured.answer.roles)
        return (*about_host, *plan_warnings(self.context, measured, diff.objective, diff.changes))

    def block(self, answer: Answer) -> str:
        return self.context.allocatable.blocked or answer.blocked or nova_unknown(self.context.snapshot)

    def _placed(self, context: Context) -> MeasuredAnswer:
        answer = per_flavor.place(context, self.strategies)
        rules.check(context.request.strategy, answer, context)
        return MeasuredAnswer.of(answer, self.measure, self.context)


def nova_unknown(snapshot: Snapshot) -> str:
    try:
        novas = [guest.name for guest in snapshot.guests if guest.nova is not None]
        configured(NovaSets(snapshot.dedicated, snapshot.shared), snapshot.nova, novas)
    except Invalid as error:
        return (
            f"pinner cannot determine which CPUs Nova owns: {error}; correct that, or set cpu_dedicated_set and "
            "cpu_shared_set in [nova] of pinner.conf"
        )
    return ""


_ALWAYS_READ = (
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
"""Fields of a request that every plan reads."""


def host_warnings(context: Context, strategies: Mapping[str, Strategy], roles: Roles) -> Iterator[str]:
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
        yield from exclusions.warnings_of_flavor(guest, strategies)
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
        unread = field.name not in (*_ALWAYS_READ, *strategy.parameters)
        if unread and getattr(request, field.name) != field.default:
            value = getattr(request, field.name)
            yield f"{field.name} {value!r} has no effect: the strategy {strategy.name} does not use it"


def plan_warnings(
    context: Context, measured: MeasuredAnswer, objective: Objective, needed: tuple[PlannedChange, ...]
) -> Iterator[str]:
    snapshot, answer = context.snapshot, measured.answer
    yield from answer.warnings
    yield from _load_warnings(context, answer.roles)
    yield from _realtime_warnings(snapshot, context.request, answer.roles, measured.masks)
    yield from core_classes.warnings(snapshot.topology, answer.wanted)
    yield from filter(None, [worsening_warning(objective, answer.roles), exchange_warning(needed)])


def _busy_outside(context: Context, roles: Roles) -> int:
    every = moving(context.snapshot, replace(context.request, with_processes=True))
    ours = {move.target for move in context.moving}
    others = (move for move in every if move.target not in ours)
    return sum(1 for move in others if any(not thread.affinity <= roles.housekeeping for thread in move.threads))


def _load_warnings(context: Context, roles: Roles) -> Iterator[str]:
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


def _realtime_warnings(
    snapshot: Snapshot, request: Request, roles: Roles, planned: Mapping[int, CpuSet]
) -> Iterator[str]:
    yield from _realtime_processes(snapshot, request, roles)
    for guest in snapshot.guests:
        yield from _realtime_guest(guest, planned)


def _realtime_processes(snapshot: Snapshot, request: Request, roles: Roles) -> Iterator[str]:
    for process in snapshot.processes:
        if process.load > request.busy_threshold and process.immovable_reason in ("", "restricted"):
            threads = [thread for thread in process.threads if thread.realtime and thread.immovable_reason != "per-cpu"]
            if shared := union(thread.affinity for thread in threads) & roles.cpus:
                load = fsum(thread.load for thread in threads)
                yield (
                    f"process {process.name} ({process.pid}) has real-time threads ({_policies(threads)}) that use "
                    f"{load:.1f} % of one CPU and may stop other threads on CPUs {shared}; pinner does not move them: "
                    "restrict them to CPUs of their own, and plans leave out these CPUs"
                )


def _realtime_guest(guest: Guest, planned: Mapping[int, CpuSet]) -> Iterator[str]:
    vcpus = [vcpu.thread for vcpu in guest.vcpus if vcpu.thread and vcpu.thread.realtime]
    if not vcpus:
        return
    masks = {thread.tid: planned.get(thread.tid, thread.affinity) for thread in vcpus}
    emulator = union(planned.get(thread.tid, thread.affinity) for thread in guest.emulator.threads)
    if both := union(masks.values()) & emulator:
        yield (
            f"guest {guest.name}: its real-time vCPUs ({_policies(vcpus)}) share CPUs {both} with its emulator "
            "threads: QEMU may get no CPU there, and the guest then does not boot or answer; give the emulator "
            "threads CPUs of their own"
        )
    if floating := union(mask for mask in masks.values() if len(mask) > 1):
        yield (
            f"guest {guest.name}: its real-time vCPUs ({_policies(vcpus)}) float over CPUs {floating} and stop other "
            "threads there; the strategy isolated gives each vCPU a CPU of its own"
        )


def _policies(threads: list[Thread]) -> str:
    return ", ".join(sorted({thread.realtime for thread in threads}))
