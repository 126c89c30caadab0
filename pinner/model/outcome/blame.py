"""Who delays a guest: the threads that ran while its threads waited for a CPU."""

from dataclasses import dataclass

from pinner.model.kinds import TargetKind

MAX_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Switch:
    """The trace point sched:sched_switch."""

    at: float
    """Seconds of the trace's clock."""
    cpu: int
    before: int
    """0: the idle thread."""
    was_runnable: bool
    """It was preempted."""
    after: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class Wakeup:
    """A thread begins to wait (sched:sched_wakeup, sched:sched_wakeup_new)."""

    at: float
    thread: int
    cpu: int


@dataclass(frozen=True, slots=True)
class Migration:
    """To another CPU's queue (sched:sched_migrate_task)."""

    at: float
    thread: int
    cpu: int


SchedEvent = Switch | Wakeup | Migration


@dataclass(frozen=True, slots=True)
class Culprit:
    """A thread that ran while threads of the guest waited for its CPU."""

    tid: int
    """0: the CPU was idle, and had not begun the guest's thread yet."""
    name: str
    """Its name; empty where it has ended and the trace does not name it."""
    pid: int
    """0: the idle thread, or one that has ended."""
    unit: str
    """Its process's systemd unit or cgroup."""
    guest: str
    """Its guest's name; empty: none."""
    ms: float
    """Milliseconds of the guest's waiting."""
    share: float
    """Its part of all waiting, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Waited:
    """How long the guest's threads of one role waited for a CPU."""

    role: TargetKind
    """vcpu, emulator, iothread or vhost."""
    ms: float
    """Milliseconds that all threads of the role waited together."""


@dataclass(frozen=True, slots=True)
class Blame:
    """The threads that ran while a guest's threads waited for a CPU."""

    guest: str
    """The guest's name."""
    seconds: float
    """Length of the trace."""
    waited: tuple[Waited, ...]
    """The waiting of each role."""
    culprits: tuple[Culprit, ...]
    """The worst first."""
    lost: int
    """Events that the kernel did not keep: the figures are too low then."""
