"""The placement that was applied on a host."""

from dataclasses import dataclass
from datetime import datetime

from pinner.model.change import Target, ThreadKey
from pinner.model.cpuset import CpuSet
from pinner.model.plan.plan import Roles
from pinner.model.plan.request import Request


@dataclass(frozen=True, slots=True)
class PlacedTarget:
    target: Target
    cpus: CpuSet
    threads: tuple[ThreadKey, ...]
    """When it was placed; None while it is not placed yet."""
    unit: str = ""
    """Of a process: its systemd unit identifies it with its name after a restart."""
    command: str = ""
    """Of a process that no service unit names: its command line, for the same purpose."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Drift is measured against it, and later plans of the same request preserve it."""

    host: str
    plan: str
    at: datetime
    request: Request
    roles: Roles
    placed: tuple[PlacedTarget, ...]
    """With some targets that are absent now: they get their old CPUs when they return."""
    since: int
    """The latest start (clock ticks after boot) of any process at that moment: later ones are new."""
    boot: str = ""
    """Empty: not known."""

    @property
    def places(self) -> frozenset[tuple[Target, CpuSet]]:
        return frozenset((each.target, each.cpus) for each in self.placed)
