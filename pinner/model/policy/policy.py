"""The policy of a host, which pinner applies again and again; and its backoffs from targets that it placed in vain."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from pinner.model.change import TargetKey
from pinner.model.doubling import doubled
from pinner.model.errors import Invalid
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
