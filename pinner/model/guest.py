"""Guests as libvirt and the kernel see them now. Only active guests have threads, and only they are placed."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from pinner.model.change import PartitionState
from pinner.model.cpuset import CpuSet, union
from pinner.model.process import Thread

_PCPUS = re.compile(r"resources([1-9][0-9]*)?:PCPU")
"""The extra spec that asks for dedicated CPUs as a resource, by Nova's own pattern."""

DEDICATING = ("dedicated", "mixed")
"""The values of hw:cpu_policy under which vCPUs have CPUs of their own: all of them, or some."""

EmulatorPolicy = Literal["", "isolate", "share"]
"""Where Nova pins QEMU's own threads (hw:emulator_threads_policy): to a CPU that it dedicates to them, to the host's
cpu_shared_set, or empty: wherever their guest's vCPUs are."""
_EMULATOR_POLICIES: tuple[EmulatorPolicy, ...] = get_args(EmulatorPolicy)

GuestState = Literal["running", "blocked", "paused", "shutdown", "crashed", "suspended", "unknown"]


@dataclass(frozen=True, slots=True)
class Vcpu:
    """A virtual CPU; ``thread`` is None while it is unplugged."""

    id: int
    thread: Thread | None
    pin: CpuSet
    """What libvirt remembers; Thread.affinity is what holds."""


@dataclass(frozen=True, slots=True)
class IoThread:
    """One of QEMU's iothreads, by libvirt's id."""

    id: int
    thread: Thread | None
    pin: CpuSet


@dataclass(frozen=True, slots=True)
class Emulator:
    """QEMU's other threads: main loop, workers, and vhost workers since Linux 6.4."""

    pin: CpuSet
    threads: tuple[Thread, ...]
    policy: EmulatorPolicy = ""
    """Of a guest that Nova pinned."""


@dataclass(frozen=True, slots=True)
class Tap:
    """A network interface of a guest on the host's side; counters as the host sees them, since the tap exists."""

    name: str
    mac: str
    rx_packets: int
    tx_packets: int
    rx_drops: int
    tx_drops: int


@dataclass(frozen=True, slots=True)
class NovaIdentity:
    """What Nova tells of the instance, in the domain's metadata or in a notification; empty where it does not."""

    instance: str
    project: str
    user: str
    flavor: str
    extra_specs: Mapping[str, str] = field(default_factory=dict)
    """The flavor's; in the metadata since Nova 32."""

    @property
    def dedicates(self) -> bool:
        """Whether the flavor asks for CPUs of its own, for all vCPUs (dedicated) or for some (mixed)."""
        asked = (count for spec, count in self.extra_specs.items() if _PCPUS.fullmatch(spec))
        return self.extra_specs.get("hw:cpu_policy") in DEDICATING or any(map(_positive, asked))

    @property
    def emulator_policy(self) -> EmulatorPolicy:
        """What the flavor asks for QEMU's own threads."""
        asked = self.extra_specs.get("hw:emulator_threads_policy", "")
        return next((policy for policy in _EMULATOR_POLICIES if policy == asked), "")


@dataclass(frozen=True, slots=True)
class Cgroup:
    """A cgroup v2 of a systemd unit: its path below the mount, and its state."""

    path: str
    state: PartitionState


@dataclass(frozen=True, slots=True)
class Guest:
    """An active libvirt domain."""

    uuid: str
    name: str
    state: GuestState
    pid: int
    """QEMU's process id."""
    vcpus: tuple[Vcpu, ...]
    emulator: Emulator
    iothreads: tuple[IoThread, ...]
    vhost_threads: tuple[Thread, ...]
    """Kernel threads that work for it outside its process (vhost-PID before Linux 6.4, kvm-pit/PID)."""
    memory_kib: int
    memory_per_node: Mapping[int, int]
    """Node id to resident KiB of the QEMU process (/proc/PID/numa_maps)."""
    taps: tuple[Tap, ...] = ()
    pci: tuple[str, ...] = ()
    """Addresses of passed-through PCI devices."""
    persistent: bool = False
    """Whether libvirt keeps a definition of it that outlives a shutdown."""
    nova: NovaIdentity | None = None
    dedicated: bool = False
    """Nova pinned its vCPUs: they and their CPUs are not ours."""
    excluded: bool = False
    """Its metadata says, under pinner's XML namespace, that its CPUs are to be left alone."""
    leaving: bool = False
    """It is being migrated away, as somebody told."""
    cgroups: tuple[Cgroup, ...] = ()
    """The units that hold it, outermost first; none where the cpuset controller of cgroup v2 is not on for them."""


def with_nova_identity(guest: Guest, identity: NovaIdentity) -> Guest:
    """The guest with an identity that Nova told elsewhere than in its metadata, and what follows from it."""
    return replace(
        guest,
        nova=identity,
        dedicated=guest.dedicated or identity.dedicates,
        emulator=replace(guest.emulator, policy=identity.emulator_policy or guest.emulator.policy),
    )


def nova_cpus(guest: Guest, online: CpuSet) -> CpuSet:
    """The CPUs that Nova dedicates to a guest that it pinned."""
    pins = [vcpu.pin for vcpu in guest.vcpus] + [vcpu.thread.affinity for vcpu in guest.vcpus if vcpu.thread]
    return dedicated_cpus(pins, guest.emulator.pin, guest.emulator.policy, online)


def dedicated_cpus(vcpus: Iterable[CpuSet], emulator: CpuSet, policy: EmulatorPolicy, online: CpuSet) -> CpuSet:
    """What a guest's pins say of the CPUs that Nova dedicates to it.

    A guest of Nova's mixed policy has vCPUs with a CPU of their own beside some that share many: only the former are
    dedicated. Without any of the former, every pin that is narrower than the host counts.
    """
    pins = list(vcpus)
    own = union(pin for pin in pins if len(pin) == 1) or union(pin for pin in pins if pin and not online <= pin)
    return own | emulator if policy == "isolate" else own


def _positive(count: str) -> bool:
    return count.isdecimal() and int(count) > 0
