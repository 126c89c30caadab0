"""Processes and threads with their loads, and their descendants."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import PurePosixPath
from typing import Generic, Literal, TypeVar

from pinner.model.change import Target, ThreadKey, ThreadMask
from pinner.model.cpuset import CpuSet

Immovable = Literal["", "per-cpu", "guest", "pinner", "restricted", "not-permitted"]
"""Why pinner does not move a thread; empty where it may.

per-cpu: a kernel thread that cannot leave its CPU (PF_NO_SETAFFINITY)
guest: a thread of QEMU, or one of its vhost or kvm-pit threads, placed with its guest
pinner: a thread of pinner itself
restricted: its owner restricted it to fewer CPUs; moved only when the request names it
not-permitted: the kernel does not let pinner move it, because pinner runs without CAP_SYS_NICE"""

NOT_PERMITTED = (
    "pinner runs without CAP_SYS_NICE: it may move no kernel thread, no other user's process, and none with more "
    "capabilities than its own"
)

RealTime = Literal["", "fifo", "rr", "deadline"]
"""SCHED_FIFO, SCHED_RR or SCHED_DEADLINE (sched(7)); empty: none."""

FULL_CPU = 95.0
"""Per cent of each CPU that threads fill."""
RESERVING_LOAD = 2.0
"""Per cent of one CPU; above it, threads of a restricted affinity keep their CPUs, whoever runs them."""

STANDING_SECONDS = 60.0
"""Until a restricted affinity keeps its CPUs, unless the configuration names its owner: builds and tests soon end."""

Reserves = Literal["", "privileged", "configured", "worked"]
"""Why a restricted affinity of a process keeps its CPUs out of every set; empty: only a measured load above
RESERVING_LOAD does.

privileged  root runs the process, or it has CAP_SYS_NICE
configured  [host] affinity_owners names the process or its user
worked      a restricted thread used more than RESERVING_LOAD since it started, and at least one second"""

ROOT = "/"


_LEVELS = 64
"""A user may nest thousands of cgroups."""


def cgroup_with_parents(path: str) -> tuple[str, ...]:
    """This cgroup and those above it, without the mount, those of the upper levels; none for a path that leaves it."""
    parts = PurePosixPath(path).parts
    folder = PurePosixPath(*parts[:_LEVELS])
    return () if ".." in parts else tuple(map(str, (folder, *folder.parents)))[:-1]


UNITS = (".service", ".scope", ".slice")
_UNIT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9:_.@\\-]{0,247}\.(?:service|scope|slice)")
"""A unit with a cgroup (systemd.unit(5))."""


def host_unit(path: str) -> str:
    """The name of the systemd unit whose cgroup this is, where the host's systemd made it: only slices are above it,
    those that the innermost one's name tells (systemd.slice(5)). Empty for a unit of a user's manager or of a
    container, who choose its name (systemd.unit(5), Delegate=)."""
    # A file of a controller could have the name of the folder of cpu.slice: systemd calls that _cpu.slice.
    names = [each.removeprefix("_") for each in path.strip("/").split("/")]
    slices = names if names[-1].endswith(".slice") else names[:-1]
    stems = accumulate(slices[-1].removesuffix(".slice").split("-"), "{}-{}".format) if slices else ()
    is_known = all(map(_UNIT.fullmatch, names)) and slices == [f"{stem}.slice" for stem in stems]
    return names[-1] if is_known else ""


def is_service(unit: str) -> bool:
    """Whether the unit of a process is a service that systemctl knows by this name, and takes for no pattern."""
    return unit.endswith(".service") and bool(_UNIT.fullmatch(unit))


@dataclass(frozen=True, slots=True)
class CpuLimit:
    """A cgroup that leaves out CPUs, for all processes in it and below (cpuset; systemd's AllowedCPUs=)."""

    path: str
    """Its path below the controller's mount; / is the mount itself."""
    cpus: CpuSet
    """The CPUs that it allows (cpuset.cpus.effective, in cgroup v1 cpuset.effective_cpus)."""

    def __str__(self) -> str:
        return f"cgroup {self.path}"


SYSTEM_SLICE = "system.slice"
HOSTS_UNITS = (SYSTEM_SLICE, "user.slice", "init.scope")
"""systemd's units of all that is no guest and no container (systemd.special(7))."""


def hosts_limits(limits: Iterable[CpuLimit]) -> list[CpuLimit]:
    return [limit for limit in limits if limit.path.strip("/") in HOSTS_UNITS]


DEFAULT_PERIOD_US = 100_000
"""The kernel's (scheduler/sched-bwc.rst)."""


@dataclass(frozen=True, slots=True)
class CpuQuota:
    """The CPU limit of a cgroup, all its CPUs together."""

    quota_us: int
    """Run time in each period."""
    period_us: int = DEFAULT_PERIOD_US
    """The length of a period."""

    def __str__(self) -> str:
        return f"{self.quota_us} us of each {self.period_us} us"


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread. The kernel reuses ids, so the start time (field 22 of /proc/TID/stat) identifies it, too."""

    tid: int
    started: int
    name: str
    """The thread's name (comm)."""
    affinity: CpuSet
    """Cpus_allowed_list of /proc/TID/status."""
    load: float = 0.0
    """Per cent of one CPU over the sample."""
    run_ns: int | None = None
    """Nanoseconds on a CPU since its start (/proc/TID/schedstat); null without the file."""
    delay_ns: int | None = None
    """Nanoseconds of waiting for a CPU since its start; null without that file."""
    immovable_reason: Immovable = ""
    """Why pinner does not move it; empty where it may."""
    realtime: RealTime = ""
    """Real-time scheduling policy; empty for a normal thread."""

    @property
    def key(self) -> ThreadKey:
        return ThreadKey(self.tid, self.started)


@dataclass(frozen=True, slots=True)
class Process:
    """A kernel thread is a process of one thread."""

    pid: int
    started: int
    name: str
    """The process's name (comm)."""
    command: str
    """The command line's first 4 KiB, arguments joined by spaces; empty for a kernel thread."""
    unit: str
    """The host's systemd unit (sshd.service), else the path of its innermost unit or cgroup; empty at the root."""
    kernel: bool
    """Whether it is a kernel thread."""
    load: float
    """Per cent of one CPU over the sample, all threads together."""
    threads: tuple[Thread, ...]
    """The threads."""
    immovable_reason: Immovable = ""
    """Why pinner moves none of its threads. A thread can have its own reason, too."""
    user: int | None = None
    """Real user id; only processes with a restricted affinity have it."""
    reserves: Reserves = ""
    """Why its restricted affinity keeps CPUs out of every set without a measured load."""
    cpu_limits: tuple[CpuLimit, ...] = field(default=(), metadata={"exclude_if": lambda limits: not limits})
    """Cgroups above it that leave out CPUs, outermost first; only processes with a restricted affinity have it."""
    recent: bool = field(default=False, metadata={"exclude_if": lambda recent: not recent})
    """Whether its restricted affinity keeps no CPU yet: it started in the last STANDING_SECONDS, and not with its
    service, and its owner is not configured."""

    @property
    def is_realtime(self) -> bool:
        return any(thread.realtime for thread in self.threads)


PLACERS = {
    "numad": "it moves guests' threads and memory",
    "tuned": "its profiles may set the affinity of the same threads",
    "ksmtuned": "it switches KSM on when memory is short",
    "cpuset": "it moves threads between cpusets",
    "auto-cpufreq": "it changes the governors",
}
"""Programs, and how they change the placement."""
_SERVES = re.compile(r"(?:\S*/)?(?:python\S* (?:-\S+ )*(?:\S*/)?)?pinner serve\b")
"""A program that starts a server, as sudo does, has other words before."""


def is_known_placer(process: Process) -> bool:
    return process.name in PLACERS and not process.kernel


def is_another_pinner(process: Process) -> bool:
    return bool(_SERVES.match(process.command)) and process.immovable_reason != "pinner" and not process.kernel


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Lineage:
    """Facts of a target when it got its mask, which host.lineage compares with other processes."""

    boot: str
    """The kernel's boot id: process ids and start times count anew after each boot."""
    since: int
    """The moment, in clock ticks after boot. Only a process that started later can have inherited the mask."""
    service: str = ""
    """Of a process: its systemd service's cgroup. Every process there descends from the service. Empty: none."""
    layout: str = ""
    """Of a process: random addresses from its last exec, which a fork shares. Empty: unknown."""
    session: int = 0
    """Of a process: its session's id. 0: unknown."""


@dataclass(frozen=True, slots=True)
class Descendants(Generic[T]):
    sure: tuple[T, ...] = ()
    unsure: tuple[T, ...] = ()
    """They may descend only from their present parent."""


def main_thread(target: Target, threads: Iterable[ThreadMask]) -> ThreadKey | None:
    """The oldest thread of the guest's emulator, which inherits no mask of other parts. None for another target."""
    oldest = min(threads, key=lambda thread: thread.started, default=None)
    return oldest.key if oldest and target.kind == "emulator" else None


def may_start_threads_of(source: Target, target: Target) -> bool:
    """Parts of one guest: the emulator starts the vCPUs and iothreads; these start only workers of the emulator."""
    return source.owner == target.owner and source.key != target.key and "emulator" in (source.kind, target.kind)


def may_inherit_of_guest(started: int, since: Lineage | None, seen: Lineage | None) -> bool:
    """Whether a thread, started at ``started`` and found at ``seen``, may have inherited the mask that another part of
    the guest got at ``since``; None: not known."""
    return since is None or (seen is not None and seen.boot != since.boot) or started >= since.since
