"""What is to hold on a host for good, and what of it stands."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid
from pinner.model.plan import Roles, Target
from pinner.model.request import Request

Mode = Literal["observe", "propose", "enforce"]
"""observe  drift is reported               propose  and a plan against it is stored, for a person to apply
enforce  and that plan is applied at once"""


@dataclass(frozen=True, slots=True)
class Policy:
    """A host's policy. Whom it leaves alone stands in the request (exempt_guests, exempt_processes).

    ``request.guests`` and ``request.processes`` may name what is not there: guests and processes come and go. Raises
    Invalid.
    """

    request: Request = field(default_factory=Request)
    mode: Mode = "observe"

    def __post_init__(self) -> None:
        if self.mode not in ("observe", "propose", "enforce"):
            raise Invalid("mode", self.mode, "observe, propose or enforce")
        if self.request.repack:
            raise Invalid("repack", True, "false: a policy moves no more than it must; plan a re-pack by hand")


@dataclass(frozen=True, slots=True)
class Placed:
    """A target with its place, and the threads that it had when it got it, each by id and start time."""

    target: Target
    cpus: CpuSet
    threads: tuple[tuple[int, int], ...]
    """None while it has not been given its place yet."""
    unit: str = ""
    """Of a process: its systemd unit, by which (and its name) it is known after a restart."""
    command: str = ""
    """Of a process that no service unit names: its command line, for the same."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The placement that stands on a host: what drift is measured against, and what incremental plans keep to."""

    host: str
    plan: str
    """The plan that it comes from."""
    at: datetime
    request: Request
    roles: Roles
    placed: tuple[Placed, ...]
    """Every target of the plan; also some that are not there now, so that they come back to their place."""
    since: int
    """The latest start time (clock ticks after boot) of a process then: what began later was born since."""

    @property
    def places(self) -> frozenset[tuple[Target, CpuSet]]:
        """Who belongs where, whatever its threads."""
        return frozenset((each.target, each.cpus) for each in self.placed)
