"""Drift: what stands against what the kernel says. And the news by which it is found at once."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pinner.model.cpuset import CpuSet
from pinner.model.plan import LeftOut, Target, ThreadMask
from pinner.model.policy import Mode

Cause = Literal[
    "arrived",
    "busy",
    "restarted",
    "hotplug",
    "thread",
    "offline",
    "moved",
    "cpuset",
    "systemd",
    "balancer",
    "libvirt",
    "unknown",
]
"""Told by comparing a snapshot with what stands:
arrived    it is new here, or is placed first         restarted  it was started anew (guest or process)
hotplug    the vCPU or iothread was plugged in since  thread     threads were born since
offline    CPUs of its place went offline or came on  moved      to make room for another guest
busy       the process became busy since
Told by the host (Agent.explain):
cpuset     a cpuset above it was written              systemd    its unit's AllowedCPUs= or CPUAffinity= says so
balancer   irqbalance, tuned or numad runs            libvirt    another writer pinned it through libvirt
unknown    the same threads have other masks, and nothing tells why"""


@dataclass(frozen=True, slots=True)
class Drift:
    """A target that is not where it belongs."""

    target: Target
    expected: CpuSet
    actual: tuple[ThreadMask, ...]
    """Those of its threads that may run elsewhere, with the kernel's word on where; none for a target with a state."""
    cause: Cause
    detail: str = ""
    """The cause in words: which cpuset, which service, since when. Empty where the cause says it all."""
    states: tuple[str, str] = ("", "")
    """Of a target with a state: what it is and what it should be."""
    times: int = 0
    """How often it was put back lately, only to be moved again; where nothing is enforced: how often it was found."""
    held_until: datetime | None = None
    """It flaps: until then it is left alone."""


@dataclass(frozen=True, slots=True)
class DriftReport:
    """How far a host is from what stands there. Without a policy and without a placement nothing drifts."""

    host: str
    at: datetime
    mode: Mode | None
    """The policy's; None: the host has none, and drift is from the last applied plan."""
    placement: str
    """The plan of the standing placement; empty: nothing stands."""
    drifts: tuple[Drift, ...]
    unplaced: tuple[LeftOut, ...] = ()
    """Guests for which the policy has no place, with the numbers."""
    proposed: str = ""
    """The plan that would end the drift, where the mode is ``propose`` and there is something to do."""
    error: str = ""
    """Why the policy cannot be kept as it is; empty: it can."""


NewsKind = Literal[
    "guest-started",
    "guest-stopped",
    "guest-changed",
    "guest-told",
    "process-born",
    "cpuset-written",
    "cpu-changed",
    "policy-set",
    "lost",
]
"""guest-started    a guest runs: started, restored, migrated in                     subject: UUID
guest-stopped    a guest is no more: shut off, destroyed, saved, migrated away    subject: UUID
guest-changed    pins, metadata, a reset; a vCPU or iothread that was plugged in  subject: UUID
guest-told       somebody told that something happened to a guest              subject: UUID
process-born     a process of a watched name began out of place, or took the name subject: pid
cpuset-written   cpuset.cpus of a guest's or service's cgroup changed             subject: cgroup path
cpu-changed      a CPU went offline or came online                                subject: CPU id
policy-set       the host has another policy                                         subject: empty
lost             news was lost (too much of it, a source was interrupted)         subject: empty"""


@dataclass(frozen=True, slots=True)
class News:
    """Something happened on a host that may have moved a thread. It only says when to look: what is so now is read
    from the kernel. ``seq`` grows by one, across restarts of the agent too."""

    seq: int
    at: datetime
    kind: NewsKind
    subject: str
    detail: str = ""
    """For people: libvirt's event and reason, the tunable that was set, the process's name."""
