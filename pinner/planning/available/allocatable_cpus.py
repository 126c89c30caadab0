"""The CPUs that pinner may allocate, why not the others, and the load that they carry."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import fsum

from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest
from pinner.model.guest.nova import NovaOwns
from pinner.model.machine.process import CpuLimit, Thread
from pinner.model.machine.topology import CoreShape
from pinner.model.snapshot import Snapshot
from pinner.planning.available.allocation_order import ANY_ORDER, AllocationOrder


@dataclass(frozen=True, slots=True)
class Demand:
    """The load, in CPUs, and the present affinities of the threads that an automatic set is for."""

    housekeeping: float = 0.0
    emulator: float = 0.0
    housekeeping_now: frozenset[CpuSet] = frozenset()
    emulator_now: frozenset[tuple[CpuSet, CpuSet]] = frozenset()
    """Each with the CPUs to which its guest's bound confines it."""

    def has_emulators(self, cpus: CpuSet) -> bool:
        """Some of QEMU's own threads are on all of these that their guest's bound leaves."""
        return any(cpus & bound == mask for mask, bound in self.emulator_now)


NO_DEMAND = Demand()


def qemus_own_threads(guest: Guest) -> list[Thread]:
    iothreads = [iothread.thread for iothread in guest.iothreads if iothread.thread]
    return [*guest.emulator.threads, *iothreads, *guest.vhost_threads]


def qemus_own_load(snapshot: Snapshot, guests: Iterable[Guest]) -> dict[int, float]:
    """CPUs by thread id."""
    loads = {
        thread.tid: thread.load / 100
        for process in snapshot.processes
        if process.load and process.immovable_reason == "guest"
        for thread in process.threads
        if thread.load
    }
    own = {thread.tid for guest in guests for thread in qemus_own_threads(guest)} if loads else ()
    return {tid: load for tid, load in loads.items() if tid in own}


PINNED = ", which an operator pinned"
"""Of the owner that is a guest."""


@dataclass(frozen=True, slots=True)
class RestrictedAffinity:
    cpus: CpuSet
    owner: str
    firm: bool = True
    """It keeps its CPUs without load, by an administrator's wish or the configuration's."""
    load: float = 0.0
    """Per cent of one CPU, all threads together."""
    named: bool = False
    """The configuration names its owner: no administrator made it by hand as a set of pinner's."""
    guest: str = ""
    """The UUID of the guest whose vCPUs are pinned there."""
    why: str = ""
    """The rule by which a process keeps the CPUs, or does not."""

    def __str__(self) -> str:
        return f"{self.owner} ({self.why})" if self.why else self.owner


@dataclass(frozen=True, slots=True)
class AllocatableCpus:
    online: CpuSet
    offline: CpuSet
    isolated: CpuSet
    nova: NovaOwns
    restrictions: tuple[RestrictedAffinity, ...]
    nodes: Mapping[int | None, CpuSet]
    """Ascending; None: the kernel reports no node."""
    cores: Mapping[int, CpuSet]
    """CPU to the online hardware threads of its core, itself included."""
    shapes: tuple[CoreShape, ...]
    partitioned: CpuSet
    """In partitions that this request makes itself; not in ``isolated``."""
    sockets: Mapping[int, int]
    minimum_cores: int = 1
    """Of each node, for each role."""
    isolating: bool = False
    """vCPUs get isolated CPUs."""
    apart: bool = False
    """Each vCPU gets a CPU to itself, isolated or not; else they float."""
    idle: tuple[RestrictedAffinity, ...] = ()
    """Allocated: their threads are idle and no administrator's."""
    set_aside: tuple[RestrictedAffinity, ...] = ()
    """Allocated: a role would have fewer cores than its minimum."""
    blocked: str = ""
    """The firm ones among ``set_aside``, for which the roles cannot have their minimum."""
    demand: Demand = NO_DEMAND
    by_hand: CpuSet = CpuSet()
    """An administrator's housekeeping set; else empty."""
    limits: tuple[CpuLimit, ...] = ()
    """What cgroups allow the guests: each set once, with the cgroup that allows the fewest; all CPUs for a guest
    without a limit. Empty: no guest has one."""
    definitions: tuple[CpuSet, ...] = ()
    """What restricted guests may use, each set once: vCPUs with CPUs of their own share none with QEMU's own threads,
    which need one there."""
    order: AllocationOrder = ANY_ORDER
    spared: CpuSet = CpuSet()
    """Of nodes that give an automatic emulator set none."""
    slices: CpuSet = CpuSet()
    """To which system.slice and the host's other units confine their processes; empty where that has all."""
    steps: tuple[int, int] | None = None
    """Of the automatic sets, for housekeeping and for emulators; None: as the load needs."""

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        restrictions: Iterable[RestrictedAffinity],
        partitioned: CpuSet = CpuSet(),
        minimum_cores: int = 1,
        *,
        isolating: bool = False,
        apart: bool = False,
    ) -> "AllocatableCpus":
        topology = snapshot.topology
        online = topology.online
        return cls(
            online=online,
            offline=topology.offline,
            isolated=(topology.isolated & online) - partitioned,
            nova=snapshot.nova_owns(),
            restrictions=tuple(restrictions),
            nodes=topology.online_by_node,
            cores=topology.online_cores,
            shapes=topology.core_shapes,
            partitioned=partitioned,
            sockets=topology.sockets,
            minimum_cores=minimum_cores,
            isolating=isolating,
            apart=apart or isolating,
        )

    @property
    def dedicated(self) -> CpuSet:
        """Also the CPUs of guests that Nova pinned."""
        return self.nova.dedicated

    @property
    def reserved(self) -> CpuSet:
        """CPUs that threads of the host do not use."""
        return self.isolated | self.partitioned | self.dedicated

    @property
    def restricted(self) -> CpuSet:
        return union(restriction.cpus for restriction in self.restrictions)

    @property
    def shared(self) -> CpuSet:
        return self.online - self.isolated - self.dedicated - self.restricted

    @property
    def unbalanced(self) -> CpuSet:
        """Isolated ones, each for one vCPU."""
        return self.for_vcpus(self.isolated - self.dedicated - self.restricted - self.order.lcores)

    def for_host(self, cpus: CpuSet) -> CpuSet:
        """Of these, the CPUs of the host's slices, unless none is, and outside Nova's cpu_shared_set, unless all are
        inside."""
        cpus = cpus & self.slices or cpus
        return cpus - self.nova.sets.shared or cpus

    def for_guests(self, cpus: CpuSet) -> CpuSet:
        """Of these, the CPUs that cgroups allow any guest."""
        return cpus & union(limit.cpus for limit in self.limits) if self.limits else cpus

    def for_vcpus(self, cpus: CpuSet) -> CpuSet:
        return self.for_guests(self.nova.for_vcpus(cpus))

    def in_turn(self, free: CpuSet, needed: int) -> tuple[CpuSet, ...]:
        """In the order in which automatic sets take them. ``needed``: CPUs for these sets together."""
        for_guests, for_vcpus = self.for_guests(free), self.for_vcpus(free)
        not_for_vcpus = free - for_guests, for_guests - for_vcpus
        return tuple(self.order.in_turn(not_for_vcpus, for_vcpus, needed, self.each_core_within))

    def cores_worth(self, cpus: CpuSet) -> float:
        return round(fsum(shape.worth(cpus) for shape in self.shapes), 6)

    def core_worth(self, core: CpuSet) -> float:
        return round(len(core) / len(self.cores[core.lowest]), 6)

    def cores_within(self, cpus: CpuSet) -> list[CpuSet]:
        return list(self.each_core_within(cpus))

    def each_core_within(self, cpus: CpuSet) -> Iterator[CpuSet]:
        rest = cpus.bits
        while rest:
            core = self.cores[(rest & -rest).bit_length() - 1]
            here = core.bits & rest
            yield core if here == core.bits else CpuSet(here)
            rest ^= here

    def count_cores(self, cpus: CpuSet) -> int:
        return sum(len(shape.touched(cpus)) for shape in self.shapes)

    def count_whole_cores(self, cpus: CpuSet) -> int:
        return sum(shape.whole(cpus) for shape in self.shapes)

    def objections(self, cpus: CpuSet, *, floating: bool = True, guest: str = "") -> list[str]:
        """Clauses that name the CPUs, without Nova's. ``guest``: the UUID of the one that gets them; else empty."""
        kinds = (
            ("absent", cpus - self.online - self.offline),
            ("offline", cpus & self.offline),
            ("isolated from the kernel's scheduler", cpus & self.isolated if floating else CpuSet()),
        )
        restrictions = (
            (f"in the restricted affinity of {restriction}", cpus & restriction.cpus)
            for restriction in self.restrictions
            if not guest or restriction.guest != guest
        )
        return [
            f"{these} {'is' if len(these) == 1 else 'are'} {why}" for why, these in (*kinds, *restrictions) if these
        ]
