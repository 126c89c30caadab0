"""Processes and threads of a host, with their load between two samples."""

from dataclasses import dataclass
from typing import Literal

from pinner.model.change import ThreadKey
from pinner.model.cpuset import CpuSet

Immovable = Literal["", "per-cpu", "guest", "pinner", "restricted"]
"""Why pinner does not move a thread; empty where it may.

per-cpu     a kernel thread that cannot leave its CPU (PF_NO_SETAFFINITY)
guest       a thread of QEMU, or one of its vhost or kvm-pit threads: placed with its guest
pinner      a thread of pinner itself
restricted  its owner restricted it to fewer CPUs: moved only when the request names it
"""

RealTime = Literal["", "fifo", "rr", "deadline"]
"""The real-time scheduling policy of a thread (SCHED_FIFO, SCHED_RR, SCHED_DEADLINE; sched(7)); empty: none."""

RESERVING_LOAD = 2.0
"""Per cent of one CPU: above it, the threads of a restricted affinity keep their CPUs, whoever runs them."""

Reserves = Literal["", "privileged", "configured", "worked"]
"""Why a restricted affinity of a process keeps its CPUs out of every set; empty: only a measured load above
RESERVING_LOAD does.

privileged  root runs the process, or it has CAP_SYS_NICE
configured  [host] affinity_owners names the process or its user
worked      a restricted thread used more than RESERVING_LOAD since it started, and at least one second
"""


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread, identified by id and start time, because the kernel reuses ids.

    The start time is in clock ticks after boot: field 22 of /proc/TID/stat.
    """

    tid: int
    """The thread id."""
    started: int
    """The start time in clock ticks after boot."""
    name: str
    """The name of the thread (comm)."""
    affinity: CpuSet
    """The kernel's Cpus_allowed_list in /proc/TID/status."""
    load: float = 0.0
    """Per cent of one CPU over the sample."""
    run_ns: int | None = None
    """Nanoseconds on a CPU since the thread started; null without /proc/TID/schedstat."""
    delay_ns: int | None = None
    """Nanoseconds waiting for a CPU since the thread started; null without /proc/TID/schedstat."""
    immovable_reason: Immovable = ""
    """Why pinner does not move the thread; empty where it may."""
    realtime: RealTime = ""
    """The real-time scheduling policy; empty for a normal thread."""

    @property
    def key(self) -> ThreadKey:
        """The identity of the thread."""
        return ThreadKey(self.tid, self.started)


@dataclass(frozen=True, slots=True)
class Process:
    """A process and all its threads; a kernel thread is a process of one thread."""

    pid: int
    """The process id."""
    started: int
    """The start time in clock ticks after boot."""
    name: str
    """The name of the process (comm)."""
    command: str
    """The first 4 KiB of the command line, arguments joined by spaces; empty for a kernel thread."""
    unit: str
    """The systemd unit (sshd.service), or the innermost cgroup's path where there is none; empty at the root."""
    kernel: bool
    """Whether it is a kernel thread."""
    load: float
    """Per cent of one CPU over the sample, all threads together."""
    threads: tuple[Thread, ...]
    """The threads."""
    immovable_reason: Immovable = ""
    """Why pinner must not move any thread of the process. A thread can also have its own reason."""
    user: int | None = None
    """The real user id; null where it was not read: it is read only of processes with a restricted affinity."""
    reserves: Reserves = ""
    """Why a restricted affinity of the process keeps its CPUs out of every set without a measured load."""

    @property
    def is_realtime(self) -> bool:
        """Whether a thread of the process has a real-time scheduling policy."""
        return any(thread.realtime for thread in self.threads)
