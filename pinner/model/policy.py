"""The policy of a host, the drift from its placement, and the backoffs from targets that were placed in vain."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from pinner.model.change import Target, TargetKey, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.doubling import doubled
from pinner.model.errors import Invalid
from pinner.model.kinds import State
from pinner.model.plan.plan import LeftOut
from pinner.model.plan.request import Request

Mode = Literal["observe", "propose", "enforce"]
"""propose: a plan that ends the drift is stored, and a person applies it; enforce: it is applied at once."""

Expected = tuple[str, ...] | None
"""Revisions that a caller expects before it changes a policy: SHA-256 of its JSON; the empty text stands for no policy.
None: every revision."""


@dataclass(frozen=True, slots=True)
class Policy:
    """``request.guests`` and ``request.processes`` may name those that do not run. But libvirt must know each guest
    that is not named by its UUID when the policy is set. Raises Invalid."""

    request: Request = field(default_factory=Request)
    """The request that pinner applies again and again."""
    mode: Mode = "observe"
    """The reaction to drift."""
    undo_if_worse: bool = False
    """Whether a run of the policy is watched, and rolled back if a measure becomes worse. The mode is propose then."""

    def __post_init__(self) -> None:
        if self.mode not in ("observe", "propose", "enforce"):
            raise Invalid("mode", self.mode, "observe, propose or enforce")
        if self.request.rebalance:
            raise Invalid(
                "rebalance", True, "false: a policy moves as little as possible; make a plan with rebalance instead"
            )


@dataclass(frozen=True, slots=True)
class Setback:
    """Why pinner set the mode of a policy from enforce to propose. It holds until somebody sets the policy again."""

    run: str
    """The run of the policy that is rolled back."""
    at: datetime
    """The time at which the mode was set."""
    why: str
    """The measures that became worse, in words."""


@dataclass(frozen=True, slots=True)
class ShownPolicy(Policy):
    """A host's policy, and why pinner has changed its mode."""

    setback: Setback | None = None
    """Why the policy enforces no longer; null: pinner has not changed the mode. No part of the revision."""

    @classmethod
    def of(cls, policy: Policy, setback: Setback | None) -> "ShownPolicy":
        return cls(policy.request, policy.mode, policy.undo_if_worse, setback)


FREE_RETRIES = 3
"""Times that a moved target is moved back without a delay."""

FREE_RESTARTS = 300
"""Times that new processes of one name are placed without a delay."""

BASE_DELAY = timedelta(seconds=5)
"""After that, or after a failure; each further one is twice as long."""

MAX_DELAY = timedelta(hours=1)

MAX_RESTART_DELAY = timedelta(minutes=1)
"""For a process that starts again and again: a run for each start would fill the disk."""

FORGET_AFTER = timedelta(minutes=10)
"""A target in place for this long, and for twice its last delay, starts without a delay again."""


@dataclass(frozen=True, slots=True)
class Backoff:
    times: int
    last: datetime
    error: str = ""
    """Of the last attempt; empty: the target was placed."""
    restarts: bool = False
    """Processes of one name were started anew; else it is one target that was moved or that failed."""

    @property
    def backoff_until(self) -> datetime:
        return self.last + self._delay

    def is_over(self, now: datetime) -> bool:
        """Whether the target has stayed in place for long enough."""
        return now - self.last > max(FORGET_AFTER, 2 * self._delay)

    @property
    def _delay(self) -> timedelta:
        most = MAX_RESTART_DELAY if self.restarts else MAX_DELAY
        if self.times < self.free:
            return timedelta()
        return doubled(BASE_DELAY, self.times - self.free, most)

    @property
    def free(self) -> int:
        """From this number of times on there is a delay."""
        return FREE_RESTARTS if self.restarts else 1 if self.error else FREE_RETRIES


Backoffs = Mapping[TargetKey, Backoff]
"""Of contested targets by kind, owner and part; of failed groups by Group."""


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
