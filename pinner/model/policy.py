"""What is to hold on a host for good, and what of it stands."""

from dataclasses import dataclass, field
from typing import Literal

from pinner.model.errors import Invalid
from pinner.model.request import Request

Mode = Literal["observe", "propose", "enforce"]
"""observe  drift is reported               propose  and a plan against it is stored, for a person to apply
enforce  and that plan is applied at once"""


@dataclass(frozen=True, slots=True)
class Policy:
    """A host's policy. Whom it leaves alone stands in the request (excluded_guests, excluded_processes).

    ``request.guests`` and ``request.processes`` may name what is not there: guests and processes come and go. Raises
    Invalid.
    """

    request: Request = field(default_factory=Request)
    mode: Mode = "observe"

    def __post_init__(self) -> None:
        if self.mode not in ("observe", "propose", "enforce"):
            raise Invalid("mode", self.mode, "observe, propose or enforce")
        if self.request.rebalance:
            raise Invalid("rebalance", True, "false: a policy moves no more than it must; plan a rebalance by hand")
