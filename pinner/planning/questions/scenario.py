"""Snapshots of hosts that are not so."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid, NoFit, NotFound
from pinner.model.guest.guest import Emulator, Guest, NovaIdentity, Vcpu
from pinner.model.guest.guest_numa import GuestNuma
from pinner.model.machine.topology import Topology
from pinner.model.processes.process import Thread
from pinner.model.questions.whatif import MAX_NEW_GUESTS, MAX_NEW_VCPUS, NewGuests, Scenario
from pinner.model.snapshot import Snapshot
from pinner.planning.available import flavors

_UUID = "ffffffff-ffff-4fff-bfff-{:012x}"
"""The last of all, so that present guests of the same size are placed before new ones."""
_FIRST_TID = 1 << 22
"""The kernel gives no thread an id from here on (PID_MAX_LIMIT)."""


def changed(snapshot: Snapshot, scenario: Scenario) -> Snapshot:
    """The snapshot with the scenario's differences. Raises NotFound for a guest or node that the host does not have;
    Invalid for CPUs that are not online, and for more than MAX_NEW_GUESTS guests or MAX_NEW_VCPUS vCPUs; NoFit where no
    CPU is left."""
    if (count := sum(each.count for each in scenario.add)) > MAX_NEW_GUESTS:
        raise Invalid("add", count, f"at most {MAX_NEW_GUESTS} guests together")
    if (vcpus := sum(each.count * each.shape.vcpus for each in scenario.add)) > MAX_NEW_VCPUS:
        raise Invalid("add", vcpus, f"guests of at most {MAX_NEW_VCPUS} vCPUs together")
    found = without_guests(snapshot, scenario.remove)
    found = without_cpus(found, scenario.without_cpus, scenario.without_nodes)
    return with_guests(found, scenario.add)


def without_guests(snapshot: Snapshot, names: Collection[str]) -> Snapshot:
    """``names`` may be UUIDs. Raises like Snapshot.running_guest."""
    gone = {snapshot.running_guest(name).uuid for name in names}
    pids = {guest.pid for guest in snapshot.guests if guest.uuid in gone}
    return replace(
        snapshot,
        guests=tuple(guest for guest in snapshot.guests if guest.uuid not in gone),
        processes=tuple(process for process in snapshot.processes if process.pid not in pids),
    )


def with_guests(snapshot: Snapshot, added: Iterable[NewGuests]) -> Snapshot:
    """With guests new1, new2 and so on, just started: their threads float, and no memory is resident."""
    everywhere = snapshot.baseline & snapshot.topology.online or snapshot.topology.online
    new: list[Guest] = []
    tid = _FIRST_TID
    for each in added:
        for _ in range(each.count):
            new.append(_guest(len(new) + 1, each, everywhere, tid))
            tid += each.shape.vcpus + 1
    return replace(snapshot, guests=(*snapshot.guests, *new))


def is_hypothetical(guest: Guest) -> bool:
    return guest.pid >= _FIRST_TID


def without_cpus(snapshot: Snapshot, cpus: CpuSet, nodes: Collection[int] = ()) -> Snapshot:
    """Without these CPUs and nodes, and their memory. Threads that could run nowhere else may run on all CPUs that are
    left, as the kernel lets them. Raises like ``changed``."""
    topology = snapshot.topology
    for node in nodes:
        if node not in (known := [each.id for each in topology.nodes]):
            raise NotFound("node", str(node), tuple(map(str, known)))
    if unknown := cpus - topology.online:
        raise Invalid("without_cpus", str(cpus), f"CPUs that are online; {unknown} are not")
    gone = cpus | union(node.cpus for node in topology.nodes if node.id in nodes) & topology.online
    if not gone and not nodes:
        return snapshot
    if not (left := topology.online - gone):
        raise NoFit(1, 0, f"no CPU would be left without CPUs {gone}")
    return replace(
        snapshot,
        topology=_without(topology, gone, nodes),
        guests=tuple(_guest_without(guest, left, gone, nodes) for guest in snapshot.guests),
        processes=tuple(
            replace(process, threads=tuple(_thread_without(thread, left, gone) for thread in process.threads))
            for process in snapshot.processes
        ),
        baseline=snapshot.baseline - gone or left,
        dedicated=snapshot.dedicated - gone,
        shared=snapshot.shared - gone,
        placed=tuple(mask - gone for mask in snapshot.placed if mask - gone),
    )


def _guest(number: int, asked: NewGuests, cpus: CpuSet, tid: int) -> Guest:
    shape = asked.shape
    specs = {flavors.STRATEGY: asked.strategy} if asked.strategy else {}
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


def _guest_without(guest: Guest, left: CpuSet, gone: CpuSet, nodes: Collection[int]) -> Guest:
    return replace(
        guest,
        vcpus=tuple(
            replace(vcpu, thread=_thread_without(vcpu.thread, left, gone)) if vcpu.thread else vcpu
            for vcpu in guest.vcpus
        ),
        emulator=replace(
            guest.emulator, threads=tuple(_thread_without(each, left, gone) for each in guest.emulator.threads)
        ),
        iothreads=tuple(
            replace(each, thread=_thread_without(each.thread, left, gone)) if each.thread else each
            for each in guest.iothreads
        ),
        vhost_threads=tuple(_thread_without(each, left, gone) for each in guest.vhost_threads),
        memory_per_node={node: kib for node, kib in guest.memory_per_node.items() if node not in nodes},
        numa=replace(
            guest.numa, huge_kib={node: kib for node, kib in guest.numa.huge_kib.items() if node not in nodes}
        ),
    )


def _thread_without(thread: Thread, left: CpuSet, gone: CpuSet) -> Thread:
    return replace(thread, affinity=thread.affinity - gone or left) if thread.affinity & gone else thread
