"""Health: whether the parts of a server do their work, and why not."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ready", "not_ready"]


@dataclass(frozen=True, slots=True)
class Check:
    """One check of a part."""

    name: str
    """The name of the part: agent, libvirt, events, journal, database, controller, threads, queue."""
    ok: bool
    """Whether the part does its work."""
    why: str = ""
    """Why it does not, for people."""


@dataclass(frozen=True, slots=True)
class AgentHealth:
    """The health of an agent, as it reports it."""

    checks: tuple[Check, ...]
    """The checks of its parts."""
    threads: int
    """The number of its threads."""


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether the server can do all of its work."""

    status: State
    """ready: every check is good."""
    checks: tuple[Check, ...]
    """The checks."""


@dataclass(frozen=True, slots=True)
class Queue:
    """The requests that wait for a thread of the server."""

    waiting: int = 0
    """Their number."""
    seconds: float = 0.0
    """How long the first of them has waited."""


def readiness(checks: tuple[Check, ...]) -> Readiness:
    """The readiness that follows from the checks."""
    return Readiness("ready" if all(check.ok for check in checks) else "not_ready", checks)
