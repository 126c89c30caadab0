"""The placement that was applied on a host."""

from dataclasses import dataclass
from datetime import datetime

from pinner.model.change import Target, ThreadKey
from pinner.model.cpuset import CpuSet
from pinner.model.plan.plan import Roles
from pinner.model.plan.request import Request


@dataclass(frozen=True, slots=True)
class PlacedTarget:
    """A target with its CPUs, and the threads that it had when it was placed."""

    target: Target
    cpus: CpuSet
    threads: tuple[ThreadKey, ...]
    """None while the target is not placed yet."""
    unit: str = ""
    """Of a process: its systemd unit. Together with its name, the unit identifies the process after a restart."""
    command: str = ""
    """Of a process that no service unit names: its command line, for the same purpose."""


@dataclass(frozen=True, slots=True)
class Placement:
    """The placement recorded after a plan has been applied. Drift is measured against it, and later plans of the same
    request preserve it."""

    host: str
    plan: str
    """The plan that was applied."""
    at: datetime
    request: Request
    roles: Roles
    placed: tuple[PlacedTarget, ...]
    """Every target of the plan, and some targets that are absent now: they get their old CPUs when they return."""
    since: int
    """The latest start time (clock ticks after boot) of any process at that moment: later ones are new."""
    boot: str = ""
    """The boot of the host in which the targets had these threads; empty: not known."""

    @property
    def places(self) -> frozenset[tuple[Target, CpuSet]]:
        """Each target with its CPUs, without its threads."""
        return frozenset((each.target, each.cpus) for each in self.placed)
