"""Drift: the difference between the recorded placement and the host's actual affinities."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pinner.model.change import Target, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import State
from pinner.model.plan.plan import LeftOut
from pinner.model.policy.policy import Mode, Setback

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
    "failed",
    "unknown",
]
"""Found by comparing a snapshot with the recorded placement:
arrived    the target is new here, or placed first    restarted  the guest or process was restarted
hotplug    the vCPU or iothread was plugged in since  thread     new threads were created
offline    CPUs of its place went offline or online   moved      because of another guest
busy       the process became busy since
Found on the host (Agent.explain_drifts):
cpuset     a cpuset above the thread was written      systemd    AllowedCPUs= or CPUAffinity= of its unit
balancer   irqbalance, tuned or numad runs            libvirt    another program pinned the target through libvirt
failed     pinner could not place the target, or another part of its guest; ``detail`` is the error
unknown    the same threads have other masks, and no known cause was found"""


@dataclass(frozen=True, slots=True)
class Drift:
    """A target whose affinity or state differs from the recorded placement."""

    target: Target
    """The target."""
    expected: CpuSet
    """The recorded CPUs."""
    actual: tuple[ThreadMask, ...]
    """The threads that may run elsewhere, with their masks from the kernel; none for a target with a state."""
    cause: Cause
    """The cause, where pinner found one."""
    detail: str = ""
    """The cause in words: which cpuset, which service, since when. Empty where the cause says it all."""
    states: tuple[State, State] | None = None
    """Of a target with a state: the actual state, and the expected one."""
    times: int = 0
    """How often this drift was corrected lately and came back, or could not be corrected; under a policy that does not
    enforce: how often it was found."""
    backoff_until: datetime | None = None
    """Until this moment the policy does not correct this drift, because it came back too often or the last attempt
    failed."""


@dataclass(frozen=True, slots=True)
class Repack:
    """The result of a re-pack's dry run, on a host whose guests have been spread for a while."""

    plan: str
    """The plan that is proposed; empty where none is."""
    pressure: float
    """How far the guests are spread: the weighted terms of nodes, caches, cores and remote memory in GiB x distance."""
    why: str = ""
    """Why no plan is proposed; else empty."""


@dataclass(frozen=True, slots=True)
class DriftReport:
    """All drifts of a host. A host without a policy and without a recorded placement has none."""

    host: str
    """The name of the host."""
    at: datetime
    """The time of the observation."""
    mode: Mode | None
    """The policy's mode; None: the host has no policy, and drift is measured from the last applied plan."""
    placement: str
    """The plan of the recorded placement; empty: none is recorded."""
    drifts: tuple[Drift, ...]
    """Each target that differs from the recorded placement."""
    unplaced: tuple[LeftOut, ...] = ()
    """Guests for which the policy has no place, with the numbers."""
    proposed: str = ""
    """The proposed plan that would end the drift; empty if the mode is not ``propose``, or nothing is to be changed."""
    error: str = ""
    """Why the policy cannot be applied now; empty: it can."""
    migrating: tuple[str, ...] = ()
    """The guests, by name, that are placed when their migration has ended."""
    repack: Repack | None = None
    """The last dry run of a re-pack; null: there was none, it is outdated, or the policy only observes."""
    setback: Setback | None = None
    """Why the policy enforces no longer: a run of it made a guest worse. Null: pinner has not changed the mode."""
