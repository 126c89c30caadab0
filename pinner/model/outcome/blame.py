"""Who delays a guest: the threads that ran while the guest's threads waited for a CPU."""

from dataclasses import dataclass

from pinner.model.kinds import TargetKind

MAX_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Switch:
    """sched:sched_switch."""

    at: float
    """Seconds of the trace's clock."""
    cpu: int
    before: int
    """Id of the thread that ran; 0 is the idle thread."""
    was_runnable: bool
    """It was preempted."""
    after: int
    """Id of the thread that runs now."""
    name: str = ""
    """Of that thread."""


@dataclass(frozen=True, slots=True)
class Wakeup:
    """A thread begins to wait on a CPU (sched:sched_wakeup, sched:sched_wakeup_new)."""

    at: float
    thread: int
    cpu: int


@dataclass(frozen=True, slots=True)
class Migration:
    """To the queue of another CPU (sched:sched_migrate_task)."""

    at: float
    thread: int
    cpu: int


SchedEvent = Switch | Wakeup | Migration


@dataclass(frozen=True, slots=True)
class Culprit:
    """A thread that ran while threads of the guest waited for its CPU."""

    tid: int
    """The id of the thread; 0: the CPU was idle, and had not begun the guest's thread yet."""
    name: str
    """The name of the thread; empty where it has ended and the trace does not name it."""
    pid: int
    """The id of its process; 0 for the idle thread, and where it has ended."""
    unit: str
    """The systemd unit or cgroup of its process."""
    guest: str
    """The name of the guest that it belongs to; empty: none."""
    ms: float
    """Milliseconds that threads of the guest waited while it ran."""
    share: float
    """The part of all waiting, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class Waited:
    """How long the threads of one role waited."""

    role: TargetKind
    """vcpu, emulator, iothread or vhost."""
    ms: float
    """Milliseconds, all threads of the role together."""


@dataclass(frozen=True, slots=True)
class Blame:
    """The result of a trace."""

    guest: str
    """The guest's name."""
    seconds: float
    """The length of the trace."""
    waited: tuple[Waited, ...]
    """The waiting of each role."""
    culprits: tuple[Culprit, ...]
    """The threads that ran meanwhile, the worst first."""
    lost: int
    """The events that the kernel did not keep: the figures are too low then."""
