"""Drift: what stands against what the kernel says. And the news by which it is found at once."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pinner.model.change import Target, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.plan import LeftOut
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
    backoff_until: datetime | None = None
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
