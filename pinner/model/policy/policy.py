"""The policy of a host: the request that pinner applies to it again and again."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

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
