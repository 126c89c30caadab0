"""What others tell of guests: libvirt's hook script, Nova. They say when to look, never that something is so."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pinner.model.cpuset import CpuSet
from pinner.model.guest import NovaIdentity

GuestEventKind = Literal["started", "leaving", "gone"]
"""started  it runs here now, anew or again: it is to be placed
leaving  it is about to be migrated away: it gets back the CPUs that it had, and is left alone
gone     it will not come back to this host: what was told of it is forgotten"""


@dataclass(frozen=True, slots=True)
class GuestEvent:
    """Something happened to a guest, as somebody tells who cannot be asked again."""

    guest: str
    """UUID."""
    kind: GuestEventKind
    event: str
    """In the teller's words: ``instance.reboot.end``, libvirt's ``started``."""
    source: str
    """Who told it, for the audit trail: ``nova req-...``, ``libvirt hook``."""
    at: datetime
    """When it happened. What happened before something that is known already changes nothing of that."""
    nova: NovaIdentity | None = None
    cpus: CpuSet = CpuSet()
    """Of ``leaving``: the CPUs that its destination has, where they are known; else none."""


@dataclass(frozen=True, slots=True)
class GuestHint:
    """What is known of a guest by events alone."""

    guest: str
    host: str
    at: datetime
    """Of the latest event."""
    nova: NovaIdentity | None = None
    leaving_until: datetime | None = None
    """It is being migrated away; after this moment that is no longer believed."""


@dataclass(frozen=True, slots=True)
class GuestEventOutcome:
    """What came of an event."""

    host: str
    guest: str
    known: bool
    """Whether the guest is one of the host's; the event of another has no effect."""
    run: str
    """Of ``leaving``: the run that gave the guest back the CPUs that it had; empty where pinner had not placed it."""


HostEventKind = Literal[
    "guest-started",
    "guest-stopped",
    "guest-changed",
    "guest-event",
    "process-started",
    "cpuset-written",
    "cpu-changed",
    "policy-set",
    "lost",
]
"""guest-started    a guest runs: it was started, restored or migrated in             subject: UUID
guest-stopped    a guest has stopped: shut off, destroyed, saved, migrated away    subject: UUID
guest-changed    pins or metadata changed, a reset, a vCPU or iothread plugged in  subject: UUID
guest-event      Nova, a hook or a caller reported an event of a guest             subject: UUID
process-started  a process started with a watched name, or took one, and its
                 affinity is not one that pinner set                               subject: pid
cpuset-written   cpuset.cpus of the cgroup of a guest or service changed           subject: cgroup path
cpu-changed      a CPU went offline or came online                                 subject: CPU id
policy-set       the host has a new policy                                         subject: empty
lost             events were lost: too many at once, or a source was interrupted   subject: empty"""


@dataclass(frozen=True, slots=True)
class HostEvent:
    """An event on a host that may have moved a thread.

    It only says when to check the host; the affinities are always read from the kernel. ``seq`` grows by one with each
    event, and it also grows when the agent restarts.
    """

    seq: int
    at: datetime
    kind: HostEventKind
    subject: str
    detail: str = ""
    """Text for people: libvirt's event and reason, the tunable that was set, or the name of the process."""
