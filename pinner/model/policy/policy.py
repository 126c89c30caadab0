"""The policy of a host: the request that pinner applies to it again and again."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from pinner.model.errors import Invalid
from pinner.model.plan.request import Request

Mode = Literal["observe", "propose", "enforce"]
"""observe  drift is reported
propose  drift is reported, and a plan that ends it is stored: a person applies it
enforce  that plan is applied at once"""

Expected = tuple[str, ...] | None
"""The revisions that a caller expects a policy to have before it changes the policy. A revision is the SHA-256 of the
policy's JSON; the empty text stands for no policy. None: the caller accepts every revision."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A host's policy. Its request names the guests and processes that it skips (excluded_guests, excluded_processes).

    ``request.guests`` and ``request.processes`` may name guests and processes that do not run, because these start and
    stop. But when the policy is set, libvirt must know each guest that is not named by its UUID. Raises Invalid.
    """

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
        """The policy with its setback."""
        return cls(policy.request, policy.mode, policy.undo_if_worse, setback)
