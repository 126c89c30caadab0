"""A host's policy, the drift from its placement, and the backoffs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from pinner.model.change import Target, TargetKey, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.doubling import doubled
from pinner.model.errors import Invalid
from pinner.model.plan.plan import LeftOut
from pinner.model.plan.request import Request
from pinner.model.states import State

Mode = Literal["observe", "propose", "enforce"]
"""propose: a plan that ends the drift is stored, and a person applies it; enforce: it is applied at once."""

Expected = tuple[str, ...] | None
"""Revisions that a caller expects before a change: SHA-256 of the policy's JSON; empty: no policy. None: all."""


@dataclass(frozen=True, slots=True)
class Policy:
    """``request.guests`` and ``request.processes`` may name those that do not run; but when the policy is set, libvirt
    must know each guest that is not named by its UUID. Raises Invalid."""

    request: Request = field(default_factory=Request)
    mode: Mode = "observe"
    """Its reaction to drift."""
    undo_if_worse: bool = False
    """A run of the policy is watched, and rolled back if a measure becomes worse; then the mode is propose."""

    def __post_init__(self) -> None:
        if self.mode not in ("observe", "propose", "enforce"):
            raise Invalid("mode", self.mode, "observe, propose or enforce")
        if self.request.rebalance:
            raise Invalid(
                "rebalance", True, "false: a policy moves as little as possible; make a plan with rebalance instead"
            )


@dataclass(frozen=True, slots=True)
class Setback:
    """Why pinner set a policy's mode from enforce to propose. It holds until somebody sets the policy again."""

    run: str
    """The policy's run that is rolled back."""
    at: datetime
    why: str
    """Measures that became worse."""


@dataclass(frozen=True, slots=True)
class ShownPolicy(Policy):
    """A policy, and why it enforces no longer."""

    setback: Setback | None = None
    """Why the policy enforces no longer; null: pinner has not changed the mode. It is no part of the revision."""

    @classmethod
    def of(cls, policy: Policy, setback: Setback | None) -> "ShownPolicy":
        return cls(policy.request, policy.mode, policy.undo_if_worse, setback)


FREE_RETRIES = 3
"""Times that a moved target is moved back without a delay."""

FREE_RESTARTS = 300
"""Times that new processes of one name are placed without a delay."""

BASE_DELAY = timedelta(seconds=5)
"""Each further one is twice as long."""

MAX_DELAY = timedelta(hours=1)

MAX_RESTART_DELAY = timedelta(minutes=1)
"""For a process that starts again and again: a run for each start would fill the disk."""

FORGET_AFTER = timedelta(minutes=10)
"""A target in place for so long, and for twice its last delay, starts without a delay again."""


@dataclass(frozen=True, slots=True)
class Backoff:
    times: int
    last: datetime
    error: str = ""
    """Of the last attempt; empty: the target was placed."""
    restarts: bool = False
    """Processes of one name were started anew; else one target was moved, or failed."""

    @property
    def backoff_until(self) -> datetime:
        return self.last + self._delay

    def is_over(self, now: datetime) -> bool:
        return now - self.last > max(FORGET_AFTER, 2 * self._delay)

    @property
    def _delay(self) -> timedelta:
        most = MAX_RESTART_DELAY if self.restarts else MAX_DELAY
        if self.times < self.free:
            return timedelta()
        return doubled(BASE_DELAY, self.times - self.free, most)

    @property
    def free(self) -> int:
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
    "guest",
    "failed",
    "unknown",
]
"""Found by comparing a snapshot with the recorded placement:
arrived    new here, or placed first                 restarted  the guest or process was restarted
hotplug    the vCPU or iothread was plugged in since thread     new threads were created
offline    CPUs of its place went offline or online  moved      because of another guest
busy       the process became busy since             guest      the guest has set it since: no policy changes it
Found on the host (Agent.explain_drifts):
cpuset     a cpuset above the thread was written     systemd    AllowedCPUs= or CPUAffinity= of its unit
balancer   irqbalance, tuned or numad runs           libvirt    another program pinned it through libvirt
failed     it, or another part of its guest, could not be placed; ``detail`` is the error
unknown    the same threads have other masks, for no known cause"""


@dataclass(frozen=True, slots=True)
class Drift:
    """A target that is not as the placement recorded it, with the cause."""

    target: Target
    expected: CpuSet
    """The CPUs that the placement recorded."""
    actual: tuple[ThreadMask, ...]
    """Threads that may run elsewhere, with their masks; none for a target with a state."""
    cause: Cause
    """Its cause, where pinner found one."""
    detail: str = ""
    """The cause in words: which cpuset, which service, since when. Empty where the cause says it all."""
    states: tuple[State, State] | None = None
    """Of a target with a state: the actual one, and the expected one."""
    times: int = 0
    """How often this drift was corrected lately and came back, or could not be corrected; under a policy that does not
    enforce: how often it was found."""
    backoff_until: datetime | None = None
    """Until then the policy does not correct it: it came back too often, or the last attempt failed."""


@dataclass(frozen=True, slots=True)
class Repack:
    """A re-pack's dry run, on a host whose guests have been spread for a while."""

    plan: str
    """The proposed one; else empty."""
    pressure: float
    """How far the guests are spread: weighted terms of nodes, caches, cores and remote memory in GiB x distance."""
    why: str = ""
    """Why no plan is proposed; else empty."""


@dataclass(frozen=True, slots=True)
class DriftReport:
    """A host's drifts; none without a policy and a recorded placement."""

    host: str
    at: datetime
    """When the host was read."""
    mode: Mode | None
    """The policy's; null: there is none, and drift is measured from the last applied plan."""
    placement: str
    """The recorded placement's plan; else empty."""
    drifts: tuple[Drift, ...]
    """The targets that differ from the placement."""
    unplaced: tuple[LeftOut, ...] = ()
    """Guests for which the policy has no place; of a placement by hand, parts of guests and processes."""
    proposed: str = ""
    """The plan that would end the drift; empty if the mode is not ``propose``, or nothing is to be changed."""
    error: str = ""
    """Why the policy cannot be applied now; else empty."""
    migrating: tuple[str, ...] = ()
    """Names of guests that are placed once their migration has ended."""
    repack: Repack | None = None
    """The last dry run; null: none, outdated, or the policy only observes."""
    setback: Setback | None = None
    """Why the policy enforces no longer; null: pinner has not changed the mode."""
