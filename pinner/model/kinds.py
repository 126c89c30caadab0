"""The kinds of targets. ``planning/settings`` and ``host/settings`` have the rest."""

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Literal, get_args

from pinner.model.cpuset import CpuSet
from pinner.model.states import Coalescing, Governor, GuestCpus, Number, PartitionState, State, Word

TargetKind = Literal[
    "emulator",
    "vcpu",
    "iothread",
    "vhost",
    "process",
    "memory",
    "workqueue",
    "partition",
    "irq",
    "rps",
    "sysctl",
    "ring",
    "epp",
    "latency",
    "governor",
    "coalescing",
    "irqbalance",
    "queues",
    "guest_rps",
    "guest_rfs",
    "guest_irq",
    "guest_sysctl",
    "weight",
    "guest",
    "metadata",
]

SettingName = Literal[
    "irqs",
    "rps",
    "sysctls",
    "rings",
    "governors",
    "epp",
    "resume-latency",
    "coalescing",
    "irqbalance",
    "queues",
    "guest-rps",
    "guest-rfs",
    "guest-irqs",
    "guest-sysctls",
    "cpu-weights",
]


@dataclass(frozen=True, slots=True)
class Kind:
    label: TargetKind
    """In JSON and in the database."""
    words: str
    """Has Target's fields in braces."""
    _: KW_ONLY
    parts: str = "{kind}"
    """For several targets of one owner; {parts} are the ranges of their numbers."""
    group: Literal["guest", "inside", "own"] = "own"
    """What a run makes or undoes together: all of the guest, all inside of it, or this one."""
    order: int | None = None
    """Place in a plan; None: a plan has none."""
    state: type[State] | None = None
    """None: the kind has threads, or is never planned."""
    remedy: SettingName | None = None
    """None: the kind is no setting."""
    room: Literal["", "inside", "power"] = ""
    """The room of its modules in planning/settings and host/settings."""
    summary: str = ""
    """What a plan that is asked for the setting does."""
    has_part: bool = False
    """A number is part of the identity, where the kind has a state."""
    is_pinned: bool = False
    """libvirt stores the pin in the guest's definition; it cannot pin vhost threads and memory."""
    is_defined: bool = False
    """``--persist`` changes the guest's definition, too."""
    is_for_all_guests: bool = False
    ends_with_process: bool = False
    """The next process of the name has another target."""
    follows_former: bool = False
    """The state after a plan depends on the one before."""
    may_be_off: bool = False
    """A state without CPUs is valid."""
    is_late: bool = False
    """Until seconds after it was set, a read shows the former state."""
    movers: str = "another program"
    """What else can set its affinity: QEMU does not change its own."""
    when_new: Literal["arrived", "hotplug", "thread"] = "arrived"
    """The cause of the drift of a new part of a placed guest."""
    leaves_file: bool = False
    """An interrupted undo may leave a file although the target has its former state."""

    @property
    def module(self) -> str:
        """Its modules' name in planning/settings and host/settings; for a setting also its field of Snapshot."""
        return (self.remedy or f"{self.label}s").replace("-", "_")

    @property
    def path(self) -> str:
        """Its modules' path in planning/settings and host/settings, without its suffix."""
        return f"{self.room}/{self.module}" if self.room else self.module


_setting = partial(Kind, order=0)
_inside = partial(_setting, group="inside", room="inside")

_ROWS = (
    _setting(
        "weight",
        "weight {name}",
        state=Number,
        remedy="cpu-weights",
        summary="the CPU weight of machine.slice, which holds all guests: ten times that of the other slices",
        leaves_file=True,
    ),
    _inside(
        "guest_rps",
        "guest {name} rps rx-{part}",
        parts="rps rx-{parts}",
        state=GuestCpus,
        remedy="guest-rps",
        summary="RPS inside guests whose virtio cards have fewer queues than vCPUs, through their guest agents",
        has_part=True,
    ),
    _inside(
        "guest_rfs",
        "guest {name}",
        state=Number,
        remedy="guest-rfs",
        summary="RFS inside such guests: the vCPU whose program reads packets takes them",
    ),
    _inside(
        "guest_irq",
        "guest {name} irq {part}",
        parts="irq {parts}",
        state=GuestCpus,
        remedy="guest-irqs",
        summary="interrupts of virtio cards inside guests: each queue gets a vCPU of its own",
        has_part=True,
    ),
    _inside(
        "guest_sysctl",
        "guest {name}",
        state=Number,
        remedy="guest-sysctls",
        summary="receive buffers of UDP inside guests",
    ),
    _setting(
        "queues",
        "queues {name}",
        state=Number,
        remedy="queues",
        summary="cards that use one of several queues get more",
    ),
    _setting(
        "coalescing",
        "coalescing {name}",
        state=Coalescing,
        remedy="coalescing",
        summary="cards with many packets gather them for one interrupt",
    ),
    _setting(
        "latency",
        "resume latency of CPU {name}",
        state=Word,
        remedy="resume-latency",
        room="power",
        summary="the CPUs of guests may not sleep so deeply that they need 50 us or more to wake",
    ),
    # Before the governor, so that a rollback restores it after the governor: with performance, drivers refuse others.
    _setting(
        "epp",
        "energy preference of CPUs {name}",
        state=Word,
        remedy="epp",
        room="power",
        summary="the energy preferences (EPP) of the CPUs of guests: performance",
        has_part=True,
    ),
    _setting(
        "governor",
        "governor of CPUs {name}",
        state=Governor,
        remedy="governors",
        room="power",
        summary="the frequency governors of the CPUs of vCPUs: performance",
        has_part=True,
    ),
    _setting(
        "ring",
        "ring {name}",
        state=Number,
        remedy="rings",
        summary="the receive rings of cards that have dropped packets, as large as possible",
    ),
    _setting(
        "sysctl",
        "sysctl {name}",
        state=Number,
        remedy="sysctls",
        summary="the kernel's settings that docs/remedies.md lists",
    ),
    _setting(
        "rps",
        "rps {name} rx-{part}",
        parts="rps rx-{parts}",
        state=CpuSet,
        remedy="rps",
        summary="the CPUs that process received packets: the CPUs of guests are taken out",
        has_part=True,
        follows_former=True,
        may_be_off=True,
    ),
    _setting(
        "irq",
        "irq {part} {name}",
        parts="irq {parts}",
        state=CpuSet,
        remedy="irqs",
        summary="the CPUs of interrupts: those of devices leave the CPUs of guests, for the housekeeping CPUs of their "
        "device's NUMA node",
        has_part=True,
    ),
    _setting(
        "irqbalance",
        "irqbalance ({owner})",
        state=CpuSet,
        remedy="irqbalance",
        summary="it sends no interrupts to the CPUs of guests",
        has_part=True,
        ends_with_process=True,
        follows_former=True,
        is_late=True,
    ),
    Kind(
        "process",
        "process {name} ({owner})",
        parts="process {owner}",
        order=0,
        ends_with_process=True,
        movers="the process or another program",
    ),
    Kind("emulator", "guest {name} emulator", group="guest", order=1, is_pinned=True, is_defined=True),
    Kind("vhost", "guest {name} vhost {part}", parts="vhost thread {parts}", group="guest", order=1, when_new="thread"),
    Kind(
        "iothread",
        "guest {name} iothread {part}",
        parts="iothread {parts}",
        group="guest",
        order=1,
        when_new="hotplug",
        is_pinned=True,
        is_defined=True,
    ),
    Kind(
        "vcpu",
        "guest {name} vcpu {part}",
        parts="vCPU {parts}",
        group="guest",
        order=2,
        when_new="hotplug",
        is_pinned=True,
        is_defined=True,
    ),
    Kind("workqueue", "workqueue {name}", order=3, state=CpuSet, is_for_all_guests=True),
    Kind("partition", "partition {name}", order=4, state=PartitionState, is_for_all_guests=True),
    Kind("memory", "guest {name} memory", group="guest"),
    Kind("metadata", "guest {name} metadata", group="guest", is_defined=True),
    Kind("guest", "guest {name}", group="guest"),
)
"""In the order of a plan's changes; ``planning/settings/table.py`` puts those inside guests last. Interrupts leave the
CPUs; irqbalance gets other CPUs, which moves interrupts at once; the host's processes leave; QEMU's own threads move;
vCPUs move to CPUs that are quiet by then. Partitions follow, each after its parent."""

KINDS: Mapping[TargetKind, Kind] = {row.label: row for row in _ROWS}


def _require_complete() -> None:
    remedies = tuple(row.remedy for row in _ROWS if row.remedy)
    for known, rows in ((TargetKind, tuple(row.label for row in _ROWS)), (SettingName, remedies)):
        if sorted(get_args(known)) != sorted(rows):
            raise TypeError(f"the table of kinds has {sorted(rows)}, and the type {sorted(get_args(known))}")


_require_complete()


def _where(fits: Callable[[Kind], object]) -> tuple[TargetKind, ...]:
    return tuple(row.label for row in _ROWS if fits(row))


PINNED = _where(lambda row: row.is_pinned)
DEFINED = _where(lambda row: row.is_defined)
OF_GUESTS = _where(lambda row: row.group == "guest")
"""Their owner is a guest, by UUID."""
QEMUS_OWN = _where(lambda row: row.group == "guest" and row.order == 1)
"""Parts of a guest that Nova does not pin, unless the flavor sets hw:emulator_threads_policy."""
INSIDE = _where(lambda row: row.group == "inside")
"""Settings of a guest's own kernel, which need not answer, or tell the truth."""
WITH_THREADS = _where(lambda row: row.order is not None and not row.state)
WITH_STATE = _where(lambda row: row.state)
SETTINGS = _where(lambda row: row.remedy)
"""No other change depends on a setting, so a run makes all others where the kernel refuses one. Processes are none: one
that keeps its CPUs would lose them to a partition."""
REMEDIES: Mapping[SettingName, Kind] = {
    name: row for name in get_args(SettingName) for row in _ROWS if row.remedy == name
}
ALONE: tuple[TargetKind, ...] = ("process", *SETTINGS)
"""Where one of these has ended, a run makes its other changes."""
