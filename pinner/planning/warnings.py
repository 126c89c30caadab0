"""A plan's warnings: what an operator should know before an apply."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from math import fsum

from pinner.model.change import PlannedChange
from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.machine.process import Thread
from pinner.model.plan.objective import Objective
from pinner.model.plan.plan import Roles, Wanted, vcpus_by_guest
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.model.text import listed
from pinner.planning.available import exclusions, restrictions
from pinner.planning.available.exclusions import unknown_guests
from pinner.planning.available.operator_pins import owned, qemus_own_pins
from pinner.planning.available.slices import is_full
from pinner.planning.changes import exchange_warning
from pinner.planning.objective import MeasuredAnswer, excused_warning
from pinner.planning.request import core_classes
from pinner.planning.request.context import Context
from pinner.planning.request.processes import moves_processes, moving, process_target
from pinner.planning.strategies.strategy import Strategy

_ALWAYS_READ = (
    "strategy",
    "excluded_guests",
    "released_guests",
    "excluded_processes",
    "nova_emulators",
    "minimum_cores",
    "rebalance",
    "with_processes",
    "weights",
    "moves",
    "remedies",
    "irq_cpus",
    "fix",
)


def of_host(context: Context, strategies: Mapping[str, Strategy], roles: Roles) -> Iterator[str]:
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
    if using := list(_using_owned(context)):
        yield f"processes that stay may use CPUs that pins of guests own: {listed(using, restrictions.NAMED)}"
    yield from _on_qemus_own(snapshot, request, roles.housekeeping)
    for guest in snapshot.guests:
        yield from exclusions.warnings_of_flavor(guest, strategies)
    yield from _absent(snapshot, request)
    if request.with_processes and not request.guests:
        yield "with_processes has no effect: a request for all guests moves the host's busy processes anyway"
    if not (moves_processes(request) or request.placement) and (busy := _busy_outside(context, roles)):
        yield (
            f"the request names guests: busy processes outside the housekeeping CPUs ({busy}) stay where they are; "
            "with_processes (--with-processes) moves them too"
        )
    for field in fields(Request):
        unread = field.name not in (*_ALWAYS_READ, *strategy.parameters)
        if unread and getattr(request, field.name) != field.default:
            value = getattr(request, field.name)
            yield f"{field.name} {value!r} has no effect: the strategy {strategy.name} does not use it"


def of_plan(
    context: Context, measured: MeasuredAnswer, objective: Objective, needed: tuple[PlannedChange, ...]
) -> Iterator[str]:
    snapshot, answer = context.snapshot, measured.answer
    yield from answer.warnings
    yield from _load_warnings(context, answer.roles) if not context.request.placement else ()
    yield from _realtime_warnings(snapshot, context.request, answer.roles, measured.masks)
    yield from core_classes.warnings(snapshot, answer.wanted)
    if using := list(_using_exclusive(context, answer.wanted)):
        yield f"guests that stay may use CPUs that others have to themselves: {listed(using, restrictions.NAMED)}"
    yield from filter(None, [excused_warning(objective), exchange_warning(needed)])


def _using_owned(context: Context) -> Iterator[str]:
    own = union(owned(context.snapshot, context.request).values())
    processes = {process_target(process): process for process in context.snapshot.processes} if own else {}
    for left in context.skipped:
        process = processes.get(left.target)
        if process is None or process.immovable_reason in ("per-cpu", "guest"):
            continue
        staying = (thread for thread in process.threads if not left.threads or thread.tid in left.threads)
        if using := own & union(thread.affinity for thread in staying if thread.immovable_reason != "per-cpu"):
            yield f"{left.target} (CPUs {using})"


def _on_qemus_own(snapshot: Snapshot, request: Request, housekeeping: CpuSet) -> Iterator[str]:
    pins = qemus_own_pins(snapshot, request)
    for guest in snapshot.guests:
        if both := pins.get(guest.uuid, CpuSet()) & housekeeping:
            yield f"housekeeping has CPUs {both}, to which an operator pinned QEMU's own threads of guest {guest.name}"


def _using_exclusive(context: Context, wanted: tuple[Wanted, ...]) -> Iterator[str]:
    if not (own := exclusions.exclusive_cpus(context.guests, context.request, wanted)):
        return
    vcpus = vcpus_by_guest(wanted)
    for guest in context.snapshot.guests:
        threads = (thread for threads in guest.threads_by_target.values() for thread in threads)
        if guest.uuid not in vcpus and (using := own & union(thread.affinity for thread in threads)):
            yield f"{guest.target} (CPUs {using})"


def _absent(snapshot: Snapshot, request: Request) -> Iterator[str]:
    for field in ("excluded_guests", "released_guests"):
        for name in unknown_guests(snapshot, getattr(request, field)):
            yield f"{field} names {name!r}: libvirt knows no such guest now"
    present = CpuSet.of(cpu.id for cpu in snapshot.topology.cpus)
    for guest in snapshot.guests:
        if absent := guest.restriction - present:
            yield f"guest {guest.name}: <vcpu cpuset='{guest.restriction}'> names CPUs {absent}, which the host lacks"
        if absent := union(pin.cpus for pin in guest.operator_pins) - present:
            yield f"guest {guest.name}: an operator's pins name CPUs {absent}, which the host lacks"


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
        if process.load > request.busy_threshold and process.immovable_reason in ("", "not-permitted"):
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
