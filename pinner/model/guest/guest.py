"""Guests as libvirt and the kernel report them. pinner places only active guests: the others have no threads."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Literal, get_args

from pinner.model.change import PartPin, Target
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid
from pinner.model.guest.nova import cpus
from pinner.model.kinds import PartitionState, TargetKind
from pinner.model.machine.process import Thread

# The NUMA nodes to which a definition binds the guest's memory, and so its vCPUs
# (https://libvirt.org/formatdomain.html: numatune, cpu/numa, memoryBacking). Nova writes these for hw:numa_nodes and
# hw:mem_page_size.
STRICT = "strict"
"""libvirt's only mode that is a bound: preferred and interleave are hints, and restrictive can be changed while the
guest runs."""


@dataclass(frozen=True, slots=True)
class MemoryBinding:
    """The NUMA nodes of the host from which memory is allocated."""

    mode: str
    """libvirt's mode: strict (from no other node, as long as the guest runs), preferred, interleave, restrictive."""
    nodes: tuple[int, ...]
    """The ids of the host's nodes."""


@dataclass(frozen=True, slots=True)
class GuestCell:
    """A NUMA node that the guest sees."""

    id: int
    """The number of the cell in the guest."""
    vcpus: CpuSet
    """The numbers of the cell's vCPUs."""
    memory_kib: int
    """The cell's memory in KiB."""
    memory: MemoryBinding | None = None
    """The host's nodes of the cell's memory (memnode); null where only the whole guest has nodes."""


@dataclass(frozen=True, slots=True)
class GuestNuma:
    """The cells of a guest, and what binds them to the host's nodes."""

    cells: tuple[GuestCell, ...] = ()
    """The cells; empty for a guest that sees one node."""
    memory: MemoryBinding | None = None
    """The host's nodes of the whole guest's memory (numatune); null where the definition has none."""
    huge_kib: Mapping[int, int] = field(default_factory=dict)
    """Node id to KiB of the guest's memory in huge pages; empty for a guest that its definition gives none."""
    pins: Mapping[int, CpuSet] = field(default_factory=dict)
    """The CPUs to which Nova pins each vCPU of the cells, by the vCPU's number: the shared CPUs of the cell's node."""
    page_kib: int = 0
    """The size in KiB of the huge pages of the guest's memory; 0: normal pages, or a size that is not known."""

    def bindings(self) -> tuple[MemoryBinding, ...]:
        """The strict ones."""
        if not self.cells and self.memory is None:
            return ()
        cells = (cell.memory or self.memory for cell in self.cells)
        every = tuple(cells) if self.cells else (self.memory,)
        return tuple(each for each in every if each is not None and each.mode == STRICT)

    def binding_of(self, vcpu: int) -> MemoryBinding | None:
        """The strict binding of the memory next to a vCPU."""
        cell = self.cell_of(vcpu)
        found = (cell.memory if cell else None) or self.memory
        return found if found is not None and found.mode == STRICT else None

    def cell_of(self, vcpu: int) -> GuestCell | None:
        return next((cell for cell in self.cells if vcpu in cell.vcpus), None)


_PCPUS = re.compile(r"resources([1-9][0-9]*)?:PCPU")
"""Nova's own pattern: dedicated CPUs as a resource."""

DEDICATING = ("dedicated", "mixed")
"""hw:cpu_policy: CPUs of their own for all vCPUs, or for some."""

EmulatorPolicy = Literal["", "isolate", "share"]
"""hw:emulator_threads_policy, where Nova pins QEMU's own threads: isolate = to a CPU of their own, share = to
cpu_shared_set, empty = to the CPUs of the vCPUs."""
_EMULATOR_POLICIES: tuple[EmulatorPolicy, ...] = get_args(EmulatorPolicy)

GuestState = Literal["running", "blocked", "paused", "shutdown", "crashed", "suspended", "migrating", "unknown"]
"""libvirt's; migrating: a migration to or from this host has not ended, so libvirt pins nothing."""


@dataclass(frozen=True, slots=True)
class Vcpu:
    """A virtual CPU; ``thread`` is None while it is unplugged."""

    id: int
    """libvirt's number of the vCPU."""
    thread: Thread | None
    """The thread of QEMU that runs the vCPU; null while it is unplugged."""
    pin: CpuSet
    """The pin that libvirt has stored; Thread.affinity is the one in force."""


@dataclass(frozen=True, slots=True)
class IoThread:
    """One of QEMU's iothreads, by libvirt's id."""

    id: int
    """libvirt's id of the iothread."""
    thread: Thread | None
    """The thread; null if QEMU has none."""
    pin: CpuSet
    """The pin that libvirt has stored."""


@dataclass(frozen=True, slots=True)
class Emulator:
    """QEMU's other threads: main loop, workers, and vhost workers since Linux 6.4."""

    pin: CpuSet
    """The pin that libvirt has stored."""
    threads: tuple[Thread, ...]
    """The threads."""
    policy: EmulatorPolicy = ""
    """The policy of a guest that Nova pinned."""


@dataclass(frozen=True, slots=True)
class Tap:
    """A network interface of a guest on the host's side; counters from the host's side, since the tap exists."""

    name: str
    """The name of the interface."""
    mac: str
    """The MAC address of the guest's interface."""
    rx_packets: int
    """Packets that the host received from the guest."""
    tx_packets: int
    """Packets that the host sent to the guest."""
    rx_drops: int
    """Packets from the guest that the host dropped."""
    tx_drops: int
    """Packets to the guest that the host dropped."""


@dataclass(frozen=True, slots=True)
class NovaIdentity:
    """The instance as Nova describes it, in the domain's metadata or in a notification; a field can be empty."""

    instance: str
    """The name of the instance."""
    project: str
    """The name of the project."""
    user: str
    """The name of the user."""
    flavor: str
    """The name of the flavor."""
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    """The flavor's extra specs; in the metadata since Nova 32."""
    flavor_id: str = ""
    """The id of the flavor (Nova's flavorid): two flavors of one name, of which the first was deleted, differ in it."""
    has_specs: bool = False
    """Whether the source lists the extra specs, also where the flavor has none. Older versions of Nova write none into
    the metadata, and a notification may lack them."""

    @property
    def specs_known(self) -> bool:
        """Whether ``extra_specs`` is the flavor's whole list. A caller of REST may list some without ``has_specs``."""
        return self.has_specs or bool(self.extra_specs)

    def is_same_flavor(self, other: "NovaIdentity") -> bool:
        """As far as both name one."""
        pairs = ((self.flavor, other.flavor), (self.flavor_id, other.flavor_id))
        return all(not mine or not theirs or mine == theirs for mine, theirs in pairs)

    @property
    def dedicates(self) -> bool:
        """Whether all vCPUs (dedicated) or some (mixed) get CPUs of their own."""
        asked = (count for spec, count in self.extra_specs.items() if _PCPUS.match(spec))
        return self.extra_specs.get("hw:cpu_policy") in DEDICATING or any(map(_positive, asked))

    @property
    def emulator_policy(self) -> EmulatorPolicy:
        asked = self.extra_specs.get("hw:emulator_threads_policy", "")
        return next((policy for policy in _EMULATOR_POLICIES if policy == asked), "")


@dataclass(frozen=True, slots=True)
class Cgroup:
    """A cgroup v2 of a systemd unit: its path below the mount, and its state."""

    path: str
    """The path below the mount of the cgroup file system."""
    state: PartitionState
    """The state of its cpuset."""


@dataclass(frozen=True, slots=True)
class OperatorPin:
    """A pin of an emulator, vCPU or iothread that neither pinner nor Nova wrote, and that restricts it."""

    kind: TargetKind
    """emulator, vcpu or iothread."""
    part: int | None
    """The number of the vCPU or iothread; null for an emulator."""
    cpus: CpuSet
    """The CPUs of the pin."""
    written: Literal["definition", "live"]
    """definition: in the persistent definition; live: only in the running guest, by a client of libvirt such as
    virsh."""


@dataclass(frozen=True)
class Guest:
    """An active libvirt domain.

    A plan names each target of a guest many times, so the targets are made once. Only a class without slots can keep
    them. Strategies of plug-ins get the mappings of vCPUs, so these are read-only.
    """

    uuid: str
    """The UUID of the libvirt domain."""
    name: str
    """The name of the libvirt domain."""
    state: GuestState
    """libvirt's state of the domain, or migrating until its migration to or from this host has ended."""
    pid: int
    """QEMU's process id."""
    vcpus: tuple[Vcpu, ...]
    """The vCPUs."""
    emulator: Emulator
    """QEMU's own threads."""
    iothreads: tuple[IoThread, ...]
    """QEMU's iothreads."""
    vhost_threads: tuple[Thread, ...]
    """Kernel threads of the guest outside its QEMU process (vhost-PID before Linux 6.4, kvm-pit/PID)."""
    memory_kib: int
    """The size of the guest's memory."""
    memory_per_node: Mapping[int, int]
    """Node id to resident KiB of the QEMU process (/proc/PID/numa_maps)."""
    taps: tuple[Tap, ...] = ()
    """The guest's network interfaces."""
    pci: tuple[str, ...] = ()
    """Addresses of passed-through PCI devices."""
    persistent: bool = False
    """Whether libvirt has a persistent definition of the guest."""
    nova: NovaIdentity | None = None
    """The instance of Nova; null if the guest is not Nova's."""
    dedicated: bool = False
    """Whether Nova pinned the guest's vCPUs. pinner does not move these vCPUs and does not use their CPUs."""
    excluded: bool = False
    """Whether pinner's mark in the guest's metadata excludes the guest."""
    leaving: bool = False
    """Whether an event said that the guest is being migrated away."""
    cgroups: tuple[Cgroup, ...] = ()
    """The cgroups of its systemd units, outermost first; empty without the cpuset controller of cgroup v2."""
    pooled: CpuSet = CpuSet()
    """CPUs that pinner gave to several threads of the guest, as a pool of one CPU: no vCPU has them to itself."""
    own_pins: tuple[PartPin, ...] = ()
    """The live pins that are pinner's, by its metadata. They claim no CPUs for the guest."""
    operator_pins: tuple[OperatorPin, ...] = ()
    """The pins that an operator wrote. A plan leaves such a guest alone unless its request names the guest."""
    unread: str = ""
    """Why libvirt does not describe the guest: a plan leaves such a guest alone. Empty: libvirt describes it."""
    numa: GuestNuma = field(default_factory=GuestNuma)
    """The guest's cells, and what binds its memory and its vCPUs to NUMA nodes of the host."""
    shared_vcpus: CpuSet = CpuSet()
    """The vCPUs without a CPU of their own of a guest with Nova's mixed policy, where its metadata says which ones."""

    @property
    def is_migrating(self) -> bool:
        return self.state == "migrating"

    @cached_property
    def target(self) -> Target:
        return Target("guest", self.uuid, None, self.name)

    @cached_property
    def plugged(self) -> tuple[int, ...]:
        """vCPUs that have a thread."""
        return tuple(self.vcpu_affinities)

    @property
    def unplugged(self) -> tuple[int, ...]:
        return tuple(vcpu.id for vcpu in self.vcpus if vcpu.thread is None)

    @cached_property
    def vcpu_affinities(self) -> Mapping[int, CpuSet]:
        """Only of vCPUs that have a thread."""
        return MappingProxyType({vcpu.id: vcpu.thread.affinity for vcpu in self.vcpus if vcpu.thread})

    @cached_property
    def vcpu_targets(self) -> Mapping[int, Target]:
        """With the unplugged ones."""
        return MappingProxyType({vcpu.id: Target("vcpu", self.uuid, vcpu.id, self.name) for vcpu in self.vcpus})

    @cached_property
    def threads_by_target(self) -> Mapping[Target, tuple[Thread, ...]]:
        """vCPUs last; without parts that have no thread."""
        found: dict[Target, tuple[Thread, ...]] = {}
        if self.emulator.threads:
            found[Target("emulator", self.uuid, None, self.name)] = self.emulator.threads
        for vhost in self.vhost_threads:
            found[Target("vhost", self.uuid, vhost.tid, self.name)] = (vhost,)
        for iothread in self.iothreads:
            if iothread.thread:
                found[Target("iothread", self.uuid, iothread.id, self.name)] = (iothread.thread,)
        for vcpu in self.vcpus:
            if vcpu.thread:
                found[self.vcpu_targets[vcpu.id]] = (vcpu.thread,)
        return found


@dataclass(frozen=True, slots=True, order=True)
class InactiveGuest:
    """A guest that has a persistent definition and does not run."""

    name: str
    """The name of the libvirt domain."""
    uuid: str
    """The UUID of the libvirt domain."""


def with_nova_identity(guest: Guest, identity: NovaIdentity) -> Guest:
    """The pinning follows from the identity, too."""
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
    """Whether a guest's metadata excludes the guest from every placement."""

    uuid: str
    """The UUID of the guest."""
    name: str
    """The name of the guest."""
    excluded: bool
    """Whether pinner does not change the guest's CPUs."""


def nova_cpus(guest: Guest, online: CpuSet) -> CpuSet:
    """The CPUs that Nova dedicates to a guest, without pinner's own pins."""
    ours = own_vcpu_pins(guest)
    vcpus = [vcpu for vcpu in guest.vcpus if vcpu.id not in guest.shared_vcpus]
    pins = [vcpu.pin for vcpu in vcpus if vcpu.pin != ours.get(vcpu.id)]
    pins += [mask for vcpu in vcpus if vcpu.thread and (mask := vcpu.thread.affinity) != ours.get(vcpu.id)]
    return dedicated_cpus(pins, guest.emulator.pin, guest.emulator.policy, online)


def own_vcpu_pins(guest: Guest) -> dict[int, CpuSet]:
    """They claim no CPUs for the guest."""
    return {pin.part: pin.cpus for pin in guest.own_pins if pin.kind == "vcpu" and pin.part is not None}


def shared_vcpus(nova: NovaIdentity | None, vcpus: int) -> CpuSet:
    """The vCPUs without a CPU of their own of a guest with Nova's mixed policy.

    Such a pin can be a single CPU, where cpu_shared_set has only one on the node. Where the flavor does not name the
    vCPUs, a single CPU counts as the vCPU's own. ``nova`` is that of the metadata: an agent reads nothing else, and
    must come to the same CPUs as a plan.
    """
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
    """Nova's mixed policy gives some vCPUs one CPU of their own: only these CPUs are dedicated. Where no vCPU has one,
    every pin with fewer CPUs than the host counts."""
    pins = list(vcpus)
    own = union(pin for pin in pins if len(pin) == 1) or union(pin for pin in pins if pin and not online <= pin)
    return own | emulator if policy == "isolate" else own
