"""Processes and threads of a host as measured between two samples."""

from dataclasses import dataclass
from typing import Literal

from pinner.model.change import ThreadKey
from pinner.model.cpuset import CpuSet

Immovable = Literal["", "per-cpu", "guest", "pinner", "restricted"]
"""Why a thread stays where it is; empty: it may be moved.

per-cpu   a kernel thread that belongs to its CPU (PF_NO_SETAFFINITY)
guest     QEMU or one of its vhost or kvm-pit helpers: placed with its guest
pinner    pinner's own processes
narrowed  somebody gave it fewer CPUs on purpose: left alone unless asked for by name
"""


@dataclass(frozen=True, slots=True)
class Thread:
    """A thread, named by id and start time (clock ticks after boot, field 22 of /proc/TID/stat) so that no reused id
    is mistaken for it."""

    tid: int
    started: int
    name: str
    affinity: CpuSet
    """The kernel's word: Cpus_allowed_list of /proc/TID/status."""
    load: float = 0.0
    """Per cent of one CPU over the sample."""
    run_ns: int | None = None
    delay_ns: int | None = None
    """Time on a CPU and time waiting for one since the thread began (/proc/TID/schedstat); None without schedstats."""
    immovable_reason: Immovable = ""

    @property
    def key(self) -> ThreadKey:
        """The name of the thread."""
        return ThreadKey(self.tid, self.started)


@dataclass(frozen=True, slots=True)
class Process:
    """A process and all its threads; a kernel thread is a process of one thread."""

    pid: int
    started: int
    name: str
    command: str
    """The command line, arguments joined by spaces; empty for a kernel thread."""
    unit: str
    """The systemd unit (sshd.service), or the innermost cgroup's path where there is none; empty at the root."""
    kernel: bool
    load: float
    """Per cent of one CPU over the sample, all threads together."""
    threads: tuple[Thread, ...]
    immovable_reason: Immovable = ""
    """Why no thread of it may be moved; single threads have a hold of their own."""
