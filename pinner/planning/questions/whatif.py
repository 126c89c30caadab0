"""The plan for a host, compared with that for the same host with other guests, nodes, CPUs or another request."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid, NoFit, NotFound, NovaConflict
from pinner.model.guest.guest import Emulator, Guest, NovaIdentity, Vcpu
from pinner.model.guest.guest_numa import GuestNuma
from pinner.model.machine.process import Thread
from pinner.model.machine.topology import Topology
from pinner.model.plan.objective import COST
from pinner.model.plan.plan import Plan, vcpus_by_guest
from pinner.model.plan.request import Request
from pinner.model.questions import MAX_NEW_GUESTS, MAX_NEW_VCPUS, NewGuests, Scenario, ScenarioOutcome, WhatIf
from pinner.model.snapshot import Snapshot
from pinner.planning import planner
from pinner.planning.available import exclusions
from pinner.planning.request.context import Context
from pinner.planning.strategies.strategy import Strategy, installed, require_known


def what_if(
    snapshot: Snapshot,
    request: Request,
    scenario: Scenario,
    strategies: Mapping[str, Strategy] | None = None,
) -> WhatIf:
    """Raises NotFound for an unknown strategy, guest or node; Invalid for CPUs or a parameter that the host as it is
    cannot have; NoFit where it has no CPU for vCPUs. Where the scenario's host cannot have a plan, the answer says
    why."""
    known = installed() if strategies is None else strategies
    then = scenario.request or request
    for either in (request, then):
        require_known(either.strategy, known)
    before = planner.plan(snapshot, "", request, known)
    other = changed(snapshot, scenario)
    first = _outcome(before)
    try:
        # A guest that the request names may be among those that the scenario removes.
        after = planner.build(known, Context.of(other, then, lenient=True), "", "")
    except (Invalid, NoFit, NovaConflict) as error:
        last = ScenarioOutcome(then.strategy, 0, (), {}, {}, impossible=str(error))
        return WhatIf(snapshot.host, snapshot.taken_at, first, last, {})
    last = _outcome(after)
    change = difference(last.planned, first.planned)
    return WhatIf(snapshot.host, snapshot.taken_at, first, last, change, moved_guests(before, after))


def moved_guests(before: Plan, after: Plan) -> tuple[Target, ...]:
    one, other = vcpus_by_guest(before.wanted), vcpus_by_guest(after.wanted)
    names = {want.target.owner: want.target.name for want in before.wanted}
    return tuple(
        Target("guest", uuid, None, names[uuid]) for uuid, cpus in one.items() if uuid in other and other[uuid] != cpus
    )


def _outcome(plan: Plan) -> ScenarioOutcome:
    return ScenarioOutcome(
        strategy=plan.request.strategy,
        guests=len(vcpus_by_guest(plan.wanted)),
        unplaced=plan.unplaced,
        now=now(plan),
        planned=planned(plan),
        warnings=plan.warnings,
        blocked=plan.blocked,
    )


_DIGITS = 6


def now(plan: Plan) -> dict[str, float]:
    return {term.name: term.before for term in plan.objective.terms if term.tier < COST}


def planned(plan: Plan) -> dict[str, float]:
    return {term.name: term.after for term in plan.objective.terms if term.tier < COST}


def difference(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    names = dict.fromkeys((*before, *after))
    rises = {name: round(after.get(name, 0.0) - before.get(name, 0.0), _DIGITS) for name in names}
    return {name: more for name, more in rises.items() if more}


_UUID = "ffffffff-ffff-4fff-bfff-{:012x}"
"""Last of all, so that present guests of the same size are placed before new ones."""
_FIRST_TID = 1 << 22
"""The kernel gives no thread an id from here on (PID_MAX_LIMIT)."""


def changed(snapshot: Snapshot, scenario: Scenario) -> Snapshot:
    """Raises NotFound for an unknown guest or node; Invalid for CPUs that are not online, and for more than
    MAX_NEW_GUESTS guests or MAX_NEW_VCPUS vCPUs; NoFit where no CPU is left."""
    if (count := sum(each.count for each in scenario.add)) > MAX_NEW_GUESTS:
        raise Invalid("add", count, f"at most {MAX_NEW_GUESTS} guests together")
    if (vcpus := sum(each.count * each.shape.vcpus for each in scenario.add)) > MAX_NEW_VCPUS:
        raise Invalid("add", vcpus, f"guests of at most {MAX_NEW_VCPUS} vCPUs together")
    host = without_guests(snapshot, scenario.remove)
    host = without_cpus(host, scenario.without_cpus, scenario.without_nodes)
    return with_guests(host, scenario.add)


def without_guests(snapshot: Snapshot, names: Collection[str]) -> Snapshot:
    gone = {snapshot.running_guest(name).uuid for name in names}
    pids = {guest.pid for guest in snapshot.guests if guest.uuid in gone}
    return replace(
        snapshot,
        guests=tuple(guest for guest in snapshot.guests if guest.uuid not in gone),
        processes=tuple(process for process in snapshot.processes if process.pid not in pids),
    )


def with_guests(snapshot: Snapshot, added: Iterable[NewGuests]) -> Snapshot:
    """With guests new1, new2 and so on, just started: their threads float, no memory is resident, and they have the
    limits of all guests."""
    everywhere = snapshot.baseline & snapshot.topology.online or snapshot.topology.online
    first = snapshot.guests[0].cpu_limits if snapshot.guests else ()
    limits = tuple(limit for limit in first if all(limit in guest.cpu_limits for guest in snapshot.guests))
    new: list[Guest] = []
    tid = _FIRST_TID
    for each in added:
        for _ in range(each.count):
            new.append(replace(_guest(len(new) + 1, each, everywhere, tid), cpu_limits=limits))
            tid += each.shape.vcpus + 1
    return replace(snapshot, guests=(*snapshot.guests, *new))


def is_hypothetical(guest: Guest) -> bool:
    return guest.pid >= _FIRST_TID


def without_cpus(snapshot: Snapshot, cpus: CpuSet, nodes: Collection[int] = ()) -> Snapshot:
    """And without their memory. Threads that could run nowhere else may run on all CPUs that are left, as the kernel
    lets them. Raises like ``changed``."""
    topology = snapshot.topology
    for node in nodes:
        if node not in (known := [each.id for each in topology.nodes]):
            raise NotFound("node", str(node), tuple(map(str, known)))
    if unknown := cpus - topology.online:
        raise Invalid("without_cpus", str(cpus), f"CPUs that are online; {unknown} are not")
    gone = cpus | union(node.cpus for node in topology.nodes if node.id in nodes) & topology.online
    if not gone and not nodes:
        return snapshot
    if not (remaining := topology.online - gone):
        raise NoFit(1, 0, f"no CPU would be left without CPUs {gone}")
    return replace(
        snapshot,
        topology=_without(topology, gone, nodes),
        guests=tuple(_guest_without(guest, remaining, gone, nodes) for guest in snapshot.guests),
        processes=tuple(
            replace(process, threads=tuple(_thread_without(thread, remaining, gone) for thread in process.threads))
            for process in snapshot.processes
        ),
        baseline=snapshot.baseline - gone or remaining,
        dedicated=snapshot.dedicated - gone,
        shared=snapshot.shared - gone,
        placed=tuple(mask - gone for mask in snapshot.placed if mask - gone),
    )


def _guest(number: int, new: NewGuests, cpus: CpuSet, tid: int) -> Guest:
    shape = new.shape
    specs = {exclusions.STRATEGY: new.strategy} if new.strategy else {}
    return Guest(
        uuid=_UUID.format(number),
        name=f"new{number}",
        state="running",
        pid=tid,
        vcpus=tuple(Vcpu(n, Thread(tid + 1 + n, 0, f"CPU {n}/KVM", cpus), cpus) for n in range(shape.vcpus)),
        emulator=Emulator(cpus, (Thread(tid, 0, "qemu", cpus),)),
        iothreads=(),
        vhost_threads=(),
        memory_kib=shape.memory_kib,
        memory_per_node={},
        nova=NovaIdentity("", "", "", "", specs, has_specs=True) if specs else None,
        numa=GuestNuma(page_kib=shape.page_kib),
    )


def _without(topology: Topology, gone: CpuSet, nodes: Collection[int]) -> Topology:
    return replace(
        topology,
        cpus=tuple(
            replace(cpu, online=False, siblings=CpuSet.of([cpu.id]))
            if cpu.id in gone
            else replace(cpu, siblings=cpu.siblings - gone)
            for cpu in topology.cpus
        ),
        nodes=tuple(replace(node, cpus=node.cpus - gone) for node in topology.nodes if node.id not in nodes),
        l3_domains=tuple(domain - gone for domain in topology.l3_domains),
        devices=tuple(each for each in topology.devices if each.node is None or each.node not in nodes),
    )


def _guest_without(guest: Guest, remaining: CpuSet, gone: CpuSet, nodes: Collection[int]) -> Guest:
    return replace(
        guest,
        vcpus=tuple(
            replace(vcpu, thread=_thread_without(vcpu.thread, remaining, gone)) if vcpu.thread else vcpu
            for vcpu in guest.vcpus
        ),
        emulator=replace(
            guest.emulator, threads=tuple(_thread_without(each, remaining, gone) for each in guest.emulator.threads)
        ),
        iothreads=tuple(
            replace(each, thread=_thread_without(each.thread, remaining, gone)) if each.thread else each
            for each in guest.iothreads
        ),
        vhost_threads=tuple(_thread_without(each, remaining, gone) for each in guest.vhost_threads),
        memory_per_node={node: kib for node, kib in guest.memory_per_node.items() if node not in nodes},
        numa=replace(
            guest.numa, huge_kib={node: kib for node, kib in guest.numa.huge_kib.items() if node not in nodes}
        ),
    )


def _thread_without(thread: Thread, remaining: CpuSet, gone: CpuSet) -> Thread:
    return replace(thread, affinity=thread.affinity - gone or remaining) if thread.affinity & gone else thread
