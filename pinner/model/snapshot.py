"""The state of a host at one moment: all input of a plan."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid, NotFound
from pinner.model.guest.guest import Guest, InactiveGuest, nova_cpus
from pinner.model.guest.nova import NovaConf, NovaGuest, NovaOwns, NovaSets
from pinner.model.kinds import KINDS, TargetKind
from pinner.model.machine.interrupts import Balancer, DeviceIrqs
from pinner.model.machine.process import Process, Thread
from pinner.model.machine.topology import FrequencyDomain, Topology
from pinner.model.settings.cards import CardQueues, RefusedSetting, RpsQueue, RxCoalescing, RxRing
from pinner.model.settings.inside import GuestIrqs, GuestRfs, GuestRps, GuestSysctls
from pinner.model.settings.power import EnergyDomain, WakeLimit
from pinner.model.states import Number, State

OVS = "Open vSwitch (DPDK)"
OVS_DAEMON = "ovs-vswitchd"


@dataclass(frozen=True, slots=True)
class OvsMasks:
    """CPU masks of Open vSwitch's database (other_config of the table Open_vSwitch)."""

    pmd: CpuSet = CpuSet()
    """pmd-cpu-mask, of polling threads; empty: not set."""
    lcore: CpuSet = CpuSet()
    """dpdk-lcore-mask, of DPDK's other threads, which do not poll; empty: not set."""
    error: str = ""
    """Why the database could not be read; empty: it was read, or there is none."""


@dataclass(frozen=True, slots=True)
class OvsDpdk:
    """The CPUs that Open vSwitch with DPDK uses."""

    masks: OvsMasks = OvsMasks()
    """Those of its database."""
    polling: CpuSet = CpuSet()
    """CPUs to which its polling threads are pinned now."""

    @property
    def cpus(self) -> CpuSet:
        """A thread that polls uses its CPU whole. Those of dpdk-lcore-mask do not."""
        return self.masks.pmd | self.polling

    def in_sets(self, nova: NovaSets) -> Iterator[tuple[str, str, CpuSet]]:
        """Nova's option, whose threads have its CPUs, and these. Floating guests may share dpdk-lcore-mask's CPUs."""
        for option, use, both in (
            ("cpu_dedicated_set", "polling threads", nova.dedicated & self.cpus),
            ("cpu_dedicated_set", "dpdk-lcore-mask", (nova.dedicated & self.masks.lcore) - self.cpus),
            ("cpu_shared_set", "polling threads", nova.shared & self.cpus),
        ):
            if both:
                yield option, use, both


MAX_SAMPLE_SECONDS = 300.0

_UNLESS_READ = {"exclude_if": lambda setting: setting is None}
"""A snapshot without the setting keeps its hash."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One host at one moment. ``processes`` has those of the host and of QEMU, also threads of guests, with the
    immovable_reason ``guest``. JSON leaves out a setting (from irqs on) that was not read (null)."""

    host: str
    taken_at: datetime
    sample_seconds: float
    """Between the two samples of every load; 0: not measured."""
    topology: Topology
    guests: tuple[Guest, ...]
    """The active guests."""
    processes: tuple[Process, ...]
    """The processes."""
    baseline: CpuSet
    """Affinity of process 1. A thread with fewer CPUs was restricted by its owner."""
    dedicated: CpuSet = CpuSet()
    """CPUs that Nova dedicates to guests (cpu_dedicated_set)."""
    shared: CpuSet = CpuSet()
    """CPUs for vCPUs of Nova's other guests (cpu_shared_set); empty: not configured."""
    nova: NovaConf | None = None
    """nova.conf; null where the host has none."""
    placed: tuple[CpuSet, ...] = ()
    """Masks that pinner gave to processes and has not undone: no restrictions by an owner."""
    minimum_cores: int = 1
    """Fewest cores of each node that a role gets, unless a request says otherwise ([host] minimum_cores)."""
    warnings: tuple[str, ...] = field(default=())
    """What the agent could not read."""
    boot: str = ""
    inactive: tuple[InactiveGuest, ...] = ()
    """Guests that do not run."""
    ovs: OvsDpdk | None = None
    """Open vSwitch with DPDK; null where the host has none."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Weights of the objective's terms that the configuration sets ([objective])."""
    irqs: DeviceIrqs | None = field(default=None, metadata=_UNLESS_READ)
    """Interrupts of devices."""
    rps: tuple[RpsQueue, ...] | None = field(default=None, metadata=_UNLESS_READ)
    """Receive queues of network interfaces."""
    sysctls: Mapping[str, int] | None = field(default=None, metadata=_UNLESS_READ)
    """Values of sysctls that a plan may change, by name, but for those that the kernel lacks."""
    rings: tuple[RxRing, ...] | None = field(default=None, metadata=_UNLESS_READ)
    """Receive rings of cards."""
    governors: tuple[FrequencyDomain, ...] | None = field(default=None, metadata=_UNLESS_READ)
    """Frequency governors; null: not read."""
    epp: tuple[EnergyDomain, ...] | None = field(default=None, metadata=_UNLESS_READ)
    """Energy preferences (EPP); empty: the driver has none."""
    resume_latency: tuple[WakeLimit, ...] | None = field(default=None, metadata=_UNLESS_READ)
    """How long CPUs may take to wake."""
    coalescing: tuple[RxCoalescing, ...] | None = field(default=None, metadata=_UNLESS_READ)
    """How cards gather received packets."""
    irqbalance: tuple[Balancer, ...] | None = field(default=None, metadata=_UNLESS_READ)
    """irqbalance, with the CPUs that it bans now."""
    queues: tuple[CardQueues, ...] | None = field(default=None, metadata=_UNLESS_READ)
    """Queues of cards."""
    guest_rps: tuple[GuestRps, ...] | None = field(default=None, metadata=_UNLESS_READ)
    """RPS inside guests; null: their agents were not asked ([libvirt] guest_agents)."""
    guest_rfs: tuple[GuestRfs, ...] | None = field(default=None, metadata=_UNLESS_READ)
    """RFS inside guests; null likewise."""
    guest_irqs: tuple[GuestIrqs, ...] | None = field(default=None, metadata=_UNLESS_READ)
    """Interrupts inside guests; null likewise."""
    guest_sysctls: tuple[GuestSysctls, ...] | None = field(default=None, metadata=_UNLESS_READ)
    """UDP buffers inside guests; null likewise."""
    cpu_weights: Mapping[str, int] | None = field(default=None, metadata=_UNLESS_READ)
    """That of the guests' slice (machine.slice) by its name; empty: no such slice, or no weight."""
    refused: tuple[RefusedSetting, ...] = field(default=(), metadata={"exclude_if": lambda refused: not refused})
    """What drivers of cards refuse to tell."""

    def running_guest(self, name: str) -> Guest:
        """By name or UUID, UUIDs first: a name may look like one. Raises NotFound; Invalid for one shut off."""
        known: tuple[Guest | InactiveGuest, ...] = (*self.guests, *self.inactive)
        for match in (*(each for each in known if each.uuid == name), *(each for each in known if each.name == name)):
            if isinstance(match, Guest):
                return match
            raise Invalid("guest", match.name, "a running guest; this one is shut off", guest=match.uuid)
        raise NotFound("guest", name, tuple(guest.name for guest in self.guests))

    def nova_owns(self) -> NovaOwns:
        """By Nova's configuration, and the guests that Nova pinned."""
        online = self.topology.online
        guests = (
            NovaGuest(guest.uuid, guest.name, nova_cpus(guest, online), not guest.emulator.policy)
            for guest in self.guests
            if guest.dedicated
        )
        return NovaOwns(NovaSets(self.dedicated, self.shared), tuple(guests))

    @property
    def slices(self) -> dict[str, str]:
        """The path of each guest's outermost unit, by the guest's name."""
        return {guest.name: guest.cgroups[0].path for guest in self.guests if guest.cgroups}

    @property
    def power_managed(self) -> CpuSet:
        """Dedicated CPUs whose governor or power Nova manages; never CPU 0."""
        manages = self.nova is not None and self.nova.power_management
        return self.dedicated - CpuSet.of([0]) if manages else CpuSet()


def restricted(threads: Iterable[Thread], snapshot: Snapshot) -> CpuSet:
    """A thread that may not use every CPU of the host's baseline is placed."""
    whole = snapshot.baseline or snapshot.topology.online
    return union(thread.affinity for thread in threads if thread.affinity and not whole <= thread.affinity)


def vcpu_threads(snapshot: Snapshot) -> Iterator[Thread]:
    return (vcpu.thread for guest in snapshot.guests for vcpu in guest.vcpus if vcpu.thread is not None)


def vcpu_cpus(snapshot: Snapshot) -> CpuSet:
    return restricted(vcpu_threads(snapshot), snapshot)


def emulator_cpus(snapshot: Snapshot) -> CpuSet:
    return restricted((thread for guest in snapshot.guests for thread in guest.emulator.threads), snapshot)


def starving_cpus(snapshot: Snapshot) -> CpuSet:
    """CPUs of threads that have only CPUs of real-time vCPUs: beside one that polls, they run only while the kernel
    stops it. Kernel threads of one CPU do not count."""
    realtime = union(thread.affinity for thread in vcpu_threads(snapshot) if thread.realtime in ("fifo", "rr"))
    of_guests = (threads for guest in snapshot.guests for threads in guest.threads_by_target.values())
    of_host = (process.threads for process in snapshot.processes if not process.kernel)
    others = [thread.affinity for threads in (*of_guests, *of_host) for thread in threads if not thread.realtime]
    return union(cpus for cpus in (snapshot.baseline or snapshot.topology.online, *others) if cpus <= realtime)


def with_affinities(snapshot: Snapshot, masks: Mapping[int, CpuSet]) -> Snapshot:
    def moved(thread: Thread) -> Thread:
        return replace(thread, affinity=masks[thread.tid]) if thread.tid in masks else thread

    def moved_guest(guest: Guest) -> Guest:
        return replace(
            guest,
            vcpus=tuple(replace(vcpu, thread=vcpu.thread and moved(vcpu.thread)) for vcpu in guest.vcpus),
            iothreads=tuple(replace(each, thread=each.thread and moved(each.thread)) for each in guest.iothreads),
            emulator=replace(guest.emulator, threads=tuple(map(moved, guest.emulator.threads))),
            vhost_threads=tuple(map(moved, guest.vhost_threads)),
        )

    return replace(
        snapshot,
        guests=tuple(map(moved_guest, snapshot.guests)),
        processes=tuple(replace(each, threads=tuple(map(moved, each.threads))) for each in snapshot.processes),
    )


WORK = Target("workqueue", "", None, "unbound kernel work")


def settings(snapshot: Snapshot) -> dict[Target, State]:
    states: dict[Target, State] = {
        cgroup_target(cgroup.path): cgroup.state for guest in snapshot.guests for cgroup in guest.cgroups
    }
    if unbound := snapshot.topology.kernel.unbound:
        states[WORK] = unbound
    for kind in KINDS.values():
        if kind.remedy:
            states |= _states(kind.label, getattr(snapshot, kind.module))
    return states


def _states(kind: TargetKind, field: Any) -> dict[Target, State]:
    if isinstance(field, Mapping):
        return {Target(kind, name, None, name): Number(value) for name, value in field.items()}
    values = field if isinstance(field, tuple) else () if field is None else (field,)
    return {target: state for value in values for target, state in value.states.items()}


def cgroup_target(path: str) -> Target:
    return Target("partition", path, None, path.rpartition("/")[2])
