"""Events only say when to read the host: its state comes from libvirt and the kernel."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import NovaIdentity

GuestEventKind = Literal["started", "leaving", "gone"]
"""started: the guest runs here; leaving: it is about to be migrated away: restore its former CPUs, then skip it; gone:
it will not return: forget its hints."""


@dataclass(frozen=True, slots=True)
class GuestEvent:
    """pinner cannot ask its sender again."""

    guest: str
    """The guest's UUID."""
    kind: GuestEventKind
    event: str
    """Its sender's name: ``instance.reboot.end``, libvirt's ``started``."""
    source: str
    """For the audit trail: ``nova req-...``, ``libvirt hook``."""
    at: datetime
    """By the clock of its publisher."""
    nova: NovaIdentity | None = None
    cpus: CpuSet = CpuSet()
    """For ``leaving``: the CPUs of its destination, if known."""
    publisher: str = ""
    """The host whose clock ``at`` is from."""
    request: str = ""
    """Nova's request id: all events of one operation share it."""


@dataclass(frozen=True, slots=True)
class EventOrder:
    """The handled events of a guest, which show that an event is late."""

    latest: Mapping[str, datetime] = field(default_factory=dict)
    """Publisher to the time of its latest event."""
    requests: tuple[str, ...] = ()
    """Ended ones, oldest first: since then the guest runs here, or has left."""
    leaving_since: datetime | None = None
    """By the server's clock."""
    leaving_request: str = ""
    """Of the migration."""


@dataclass(frozen=True, slots=True)
class GuestHint:
    """What only events say of a guest."""

    guest: str
    host: str
    at: datetime
    """Of the latest event, by the server's clock."""
    nova: NovaIdentity | None = None
    leaving_until: datetime | None = None
    order: EventOrder = EventOrder()


@dataclass(frozen=True, slots=True)
class GuestEventOutcome:
    """What pinner does about a guest's event."""

    host: str
    guest: str
    """The guest's UUID."""
    known: bool
    """Whether the host has the guest; else the event has no effect."""
    run: str
    """For ``leaving``: the run that restored the guest's earlier CPUs; empty where pinner had not placed it."""
    ignored: str = ""
    """Why the event changed nothing that pinner knows of the guest: it is late, or its time cannot be right. pinner
    checks the host nevertheless. Empty: it was used."""


HostEventKind = Literal[
    "guest-started",
    "guest-stopped",
    "guest-changed",
    "guest-reset",
    "guest-paused",
    "guest-event",
    "process-started",
    "cpuset-written",
    "cpu-changed",
    "policy-set",
    "lost",
]
"""guest-started    runs: was started, restored or migrated in               subject: UUID
guest-stopped    shut off, destroyed, saved, migrated away                subject: UUID
guest-changed    pins or metadata changed, a vCPU or iothread plugged in  subject: UUID
guest-reset      its operating system was restarted, and QEMU was not     subject: UUID
guest-paused     its vCPUs were stopped                                   subject: UUID
guest-event      Nova, a hook or a caller reported an event               subject: UUID
process-started  started with a watched name, or took one, and its affinity is not pinner's; subject: pid
cpuset-written   cpuset.cpus of a guest's or service's cgroup changed     subject: cgroup path
cpu-changed      went offline or came online                              subject: CPU id
policy-set       the host has a new policy                                subject: empty
lost             too many events at once, or a source was interrupted     subject: empty"""


@dataclass(frozen=True, slots=True)
class HostEvent:
    """Says only when to check the host. ``seq`` grows by one with each event, and also when the agent restarts."""

    seq: int
    at: datetime
    kind: HostEventKind
    subject: str
    detail: str = ""
    """For people: libvirt's event and reason, the tunable, or the process name."""
