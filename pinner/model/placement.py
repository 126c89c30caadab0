"""The placement that was applied on a host."""

from dataclasses import dataclass
from datetime import datetime

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.plan import Roles
from pinner.model.request import Request


@dataclass(frozen=True, slots=True)
class PlacedTarget:
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
class Placement:
    """The placement that stands on a host: what drift is measured against, and what incremental plans keep to."""

    host: str
    plan: str
    """The plan that it comes from."""
    at: datetime
    request: Request
    roles: Roles
    placed: tuple[PlacedTarget, ...]
    """Every target of the plan; also some that are not there now, so that they come back to their place."""
    since: int
    """The latest start time (clock ticks after boot) of a process then: what began later was born since."""

    @property
    def places(self) -> frozenset[tuple[Target, CpuSet]]:
        """Who belongs where, whatever its threads."""
        return frozenset((each.target, each.cpus) for each in self.placed)
