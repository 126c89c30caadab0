"""Guests as libvirt and the kernel report them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Literal, get_args

from pinner.model.change import PartPin, Target
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid
from pinner.model.guest.guest_numa import GuestNuma, GuestTopology
from pinner.model.guest.nova import cpus
from pinner.model.kinds import TargetKind
from pinner.model.machine.process import CpuLimit, CpuQuota, Thread
from pinner.model.states import PartitionState

MIGRATION = ("live_migration", "multifdsend", "multifdrecv", "mig/")
"""The first letters of QEMU's migration threads."""

_PCPUS = re.compile(r"resources([1-9][0-9]*)?:PCPU")
"""Nova's own pattern of dedicated CPUs as a resource."""

DEDICATING = ("dedicated", "mixed")
"""Values of hw:cpu_policy with CPUs of their own for all vCPUs, or some."""

EmulatorPolicy = Literal["", "isolate", "share"]
"""hw:emulator_threads_policy: Nova pins QEMU's own threads to a CPU of their own (isolate), to cpu_shared_set (share),
or to the vCPUs' CPUs (empty)."""
_EMULATOR_POLICIES: tuple[EmulatorPolicy, ...] = get_args(EmulatorPolicy)

GuestState = Literal["running", "blocked", "paused", "shutdown", "crashed", "suspended", "migrating", "unknown"]
"""libvirt's; migrating: a migration to or from this host has not ended, so libvirt pins nothing."""


@dataclass(frozen=True, slots=True)
class Vcpu:
    """A vCPU of a guest, with its thread and its pin."""

    id: int
    """The number of the vCPU, as libvirt counts."""
    thread: Thread | None
    """QEMU's thread that runs it; null while unplugged."""
    pin: CpuSet
    """libvirt's stored pin; Thread.affinity is the one in force."""


@dataclass(frozen=True, slots=True)
class IoThread:
    """One of QEMU's iothreads."""

    id: int
    """The number of the iothread, as libvirt counts."""
    thread: Thread | None
    """Its thread; null if QEMU has none."""
    pin: CpuSet


@dataclass(frozen=True, slots=True)
class Emulator:
    """QEMU's other threads: main loop, workers, and vhost workers since Linux 6.4."""

    pin: CpuSet
    threads: tuple[Thread, ...]
    """The threads."""
    policy: EmulatorPolicy = ""
    """The policy of a guest that Nova pinned."""


@dataclass(frozen=True, slots=True)
class Tap:
    """A guest's network interface on the host's side; it counts since the tap exists."""

    name: str
    mac: str
    """The guest's MAC address."""
    rx_packets: int
    """Packets from the guest."""
    tx_packets: int
    """Packets to the guest."""
    rx_drops: int
    """Packets from the guest that the host dropped."""
    tx_drops: int
    """Packets to the guest that the host dropped."""
    model: str = field(default="", metadata={"exclude_if": lambda model: not model})
    """The card that the guest sees, such as virtio or e1000; empty: not known."""
    rx_queue_size: int = field(default=0, metadata={"exclude_if": lambda size: not size})
    """Packets that the guest's receive ring holds; 0: QEMU's own 256."""
    queues: int = field(default=0, metadata={"exclude_if": lambda queues: not queues})
    """Queues that the card has; 0: QEMU's own one. The guest may use fewer: then the tap has fewer."""

    @property
    def is_virtio(self) -> bool:
        return not self.model or self.model.startswith("virtio")


@dataclass(frozen=True, slots=True)
class NovaIdentity:
    """The instance's names, as the domain's metadata or a notification has them; a field can be empty."""

    instance: str
    """The instance's name."""
    project: str
    """The project's name."""
    user: str
    """The user's name."""
    flavor: str
    """The flavor's name."""
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    """The flavor's; in the metadata since Nova 32."""
    flavor_id: str = ""
    """Nova's flavorid: a deleted flavor may have had the same name."""
    has_specs: bool = False
    """Whether the source lists all extra specs, even if there are none. Older Novas write none into the metadata, and a
    notification may lack them."""

    @property
    def specs_known(self) -> bool:
        """Whether ``extra_specs`` is the whole list. A caller of REST may list some without ``has_specs``."""
        return self.has_specs or bool(self.extra_specs)

    def is_same_flavor(self, other: "NovaIdentity") -> bool:
        """As far as both name one."""
        pairs = ((self.flavor, other.flavor), (self.flavor_id, other.flavor_id))
        return all(not mine or not theirs or mine == theirs for mine, theirs in pairs)

    @property
    def dedicates(self) -> bool:
        """Whether all vCPUs (dedicated) or some (mixed) get CPUs of their own."""
        counts = (count for spec, count in self.extra_specs.items() if _PCPUS.match(spec))
        return self.extra_specs.get("hw:cpu_policy") in DEDICATING or any(map(_positive, counts))

    @property
    def emulator_policy(self) -> EmulatorPolicy:
        named = self.extra_specs.get("hw:emulator_threads_policy", "")
        return next((policy for policy in _EMULATOR_POLICIES if policy == named), "")


@dataclass(frozen=True, slots=True)
class Cgroup:
    """A cgroup v2 of a systemd unit."""

    path: str
    """Its path below the mount."""
    state: PartitionState


@dataclass(frozen=True, slots=True)
class OperatorPin:
    """A restricting pin that neither pinner nor Nova wrote."""

    kind: TargetKind
    """emulator, vcpu or iothread."""
    part: int | None
    cpus: CpuSet
    """The CPUs."""
    written: Literal["definition", "live"]
    """definition: in the persistent one; live: only in the running guest, by a client of libvirt such as virsh."""


@dataclass(frozen=True)
class Guest:
    """An active libvirt domain.

    The class has no slots, so that it can keep targets. The mappings of vCPUs are read-only, because plug-ins get them.
    """

    uuid: str
    name: str
    state: GuestState
    """libvirt's, or migrating until a migration to or from this host has ended."""
    pid: int
    """QEMU's process id."""
    vcpus: tuple[Vcpu, ...]
    """The vCPUs."""
    emulator: Emulator
    iothreads: tuple[IoThread, ...]
    """The threads of QEMU that do block I/O."""
    vhost_threads: tuple[Thread, ...]
    """Kernel threads outside its QEMU process (vhost-PID before Linux 6.4, kvm-pit/PID)."""
    memory_kib: int
    memory_per_node: Mapping[int, int]
    """Node id to resident KiB of QEMU (/proc/PID/numa_maps)."""
    taps: tuple[Tap, ...] = ()
    """Its network interfaces."""
    pci: tuple[str, ...] = ()
    """Addresses of passed-through PCI devices."""
    persistent: bool = False
    """Whether it has a persistent definition."""
    nova: NovaIdentity | None = None
    """Nova's instance; null if the guest is not Nova's."""
    dedicated: bool = False
    """Whether Nova pinned its vCPUs: pinner does not move them, and does not use their CPUs."""
    excluded: bool = False
    """Whether pinner's mark in its metadata excludes it."""
    leaving: bool = False
    """Whether an event said that it is being migrated away."""
    cgroups: tuple[Cgroup, ...] = ()
    """Those of its systemd units, outermost first; empty without the cpuset controller of cgroup v2."""
    pooled: CpuSet = CpuSet()
    """CPUs that pinner gave to several of its threads, as a pool of one CPU: no vCPU has them to itself."""
    own_pins: tuple[PartPin, ...] = ()
    """Live pins that are pinner's, by its metadata. They claim no CPUs."""
    operator_pins: tuple[OperatorPin, ...] = ()
    """A plan leaves a guest with such pins alone unless its request names it."""
    restriction: CpuSet = CpuSet()
    """CPUs of its definition (<vcpu cpuset>) for all threads; empty: any, or Nova wrote it. A plan places it there."""
    unread: str = ""
    """Why libvirt does not describe it: a plan leaves it alone. Empty: libvirt describes it."""
    numa: GuestNuma = field(default_factory=GuestNuma)
    """What binds its memory and vCPUs to the host's NUMA nodes."""
    shared_vcpus: CpuSet = CpuSet()
    """vCPUs without a CPU of their own, by Nova's mixed policy, where the metadata names them."""
    cpu_limits: tuple[CpuLimit, ...] = field(default=(), metadata={"exclude_if": lambda limits: not limits})
    """Cgroups above it that leave out CPUs, outermost first: none of its threads can leave what the last one allows.
    Partitions are in ``cgroups``."""
    topology: GuestTopology | None = field(default=None, metadata={"exclude_if": lambda topology: topology is None})
    """What its definition says (<topology>); null: nothing, and left out in JSON."""
    quotas: Mapping[str, CpuQuota] = field(default_factory=dict, metadata={"exclude_if": lambda quotas: not quotas})
    """Limits of libvirt, by the name that `virsh schedinfo` gives them (vcpu_quota, emulator_quota)."""

    @property
    def migration_threads(self) -> tuple[Thread, ...]:
        """Those of ``emulator`` that send or receive its memory. They start with the emulator's affinity."""
        return tuple(thread for thread in self.emulator.threads if thread.name.startswith(MIGRATION))

    @property
    def is_migrating(self) -> bool:
        return self.state == "migrating"

    @cached_property
    def target(self) -> Target:
        return Target("guest", self.uuid, None, self.name)

    @cached_property
    def plugged(self) -> tuple[int, ...]:
        return tuple(self.vcpu_affinities)

    @property
    def unplugged(self) -> tuple[int, ...]:
        return tuple(vcpu.id for vcpu in self.vcpus if vcpu.thread is None)

    @cached_property
    def vcpu_affinities(self) -> Mapping[int, CpuSet]:
        return MappingProxyType({vcpu.id: vcpu.thread.affinity for vcpu in self.vcpus if vcpu.thread})

    @cached_property
    def vcpu_targets(self) -> Mapping[int, Target]:
        """With the unplugged ones."""
        return MappingProxyType({vcpu.id: Target("vcpu", self.uuid, vcpu.id, self.name) for vcpu in self.vcpus})

    @cached_property
    def threads_by_target(self) -> Mapping[Target, tuple[Thread, ...]]:
        """vCPUs last; parts without a thread, or with one that pinner may not move, are left out."""
        threads: dict[Target, tuple[Thread, ...]] = {}
        if self.emulator.threads:
            threads[Target("emulator", self.uuid, None, self.name)] = self.emulator.threads
        for vhost in self.vhost_threads:
            if vhost.immovable_reason != "not-permitted":
                threads[self._vhost_target(vhost)] = (vhost,)
        for iothread in self.iothreads:
            if iothread.thread:
                threads[Target("iothread", self.uuid, iothread.id, self.name)] = (iothread.thread,)
        for vcpu in self.vcpus:
            if vcpu.thread:
                threads[self.vcpu_targets[vcpu.id]] = (vcpu.thread,)
        return threads

    @property
    def forbidden_targets(self) -> tuple[Target, ...]:
        """The vhost threads that pinner may not move."""
        forbidden = (thread for thread in self.vhost_threads if thread.immovable_reason == "not-permitted")
        return tuple(map(self._vhost_target, forbidden))

    def _vhost_target(self, thread: Thread) -> Target:
        return Target("vhost", self.uuid, thread.tid, self.name)


@dataclass(frozen=True, slots=True, order=True)
class InactiveGuest:
    """A guest with a persistent definition that does not run."""

    name: str
    uuid: str


def with_nova_identity(guest: Guest, identity: NovaIdentity) -> Guest:
    """Its pinning follows from the identity."""
    return replace(
        guest,
        nova=identity,
        dedicated=guest.dedicated or identity.dedicates,
        emulator=replace(guest.emulator, policy=identity.emulator_policy or guest.emulator.policy),
    )


def _positive(count: str) -> bool:
    try:
        return int(count) > 0
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class GuestExclusion:
    """Whether a guest's metadata excludes it from every placement."""

    uuid: str
    name: str
    excluded: bool
    """Whether pinner leaves the guest's CPUs alone."""


def nova_cpus(guest: Guest, online: CpuSet) -> CpuSet:
    ours = own_vcpu_pins(guest)
    vcpus = [vcpu for vcpu in guest.vcpus if vcpu.id not in guest.shared_vcpus]
    pins = [vcpu.pin for vcpu in vcpus if vcpu.pin != ours.get(vcpu.id)]
    pins += [mask for vcpu in vcpus if vcpu.thread and (mask := vcpu.thread.affinity) != ours.get(vcpu.id)]
    return dedicated_cpus(pins, guest.emulator.pin, guest.emulator.policy, online)


def own_vcpu_pins(guest: Guest) -> dict[int, CpuSet]:
    """They claim no CPUs."""
    return {pin.part: pin.cpus for pin in guest.own_pins if pin.kind == "vcpu" and pin.part is not None}


def shared_vcpus(nova: NovaIdentity | None, vcpus: int) -> CpuSet:
    """vCPUs that have no CPU of their own under Nova's mixed policy; none if the flavor names no vCPUs. ``nova`` is of
    the metadata: the agent reads nothing else, and must find the CPUs of the plan."""
    specs = nova.extra_specs if nova else {}
    mask = specs.get("hw:cpu_dedicated_mask", "").strip()
    if specs.get("hw:cpu_policy") != "mixed" or not mask:
        return CpuSet()
    try:
        own = cpus(f"0-{vcpus - 1},{mask}" if mask.startswith("^") else mask, "hw:cpu_dedicated_mask")
    except Invalid:
        return CpuSet()
    return CpuSet.of(range(vcpus)) - own


def dedicated_cpus(vcpus: Iterable[CpuSet], emulator: CpuSet, policy: EmulatorPolicy, online: CpuSet) -> CpuSet:
    """Under Nova's mixed policy, dedicated vCPUs' CPUs; where there are none, pins with fewer CPUs than the host."""
    pins = list(vcpus)
    own = union(pin for pin in pins if len(pin) == 1) or union(pin for pin in pins if pin and not online <= pin)
    return own | emulator if policy == "isolate" else own
