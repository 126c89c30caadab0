"""Whether the parts of a server do their work, and why not."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ready", "not_ready"]


@dataclass(frozen=True, slots=True)
class Check:
    """Whether one part of pinner works."""

    name: str
    """The part: agent, libvirt, events, journal, database, controller, threads, queue."""
    ok: bool
    """Whether the part does its work."""
    why: str = ""
    """Why it does not."""


@dataclass(frozen=True, slots=True)
class AgentHealth:
    checks: tuple[Check, ...]
    threads: int


@dataclass(frozen=True, slots=True)
class Readiness:
    """Whether pinner can do its work now."""

    status: State
    """ready: every check is good."""
    checks: tuple[Check, ...]
    """The checks."""


@dataclass(frozen=True, slots=True)
class Queue:
    """Requests that wait for a thread of the server."""

    waiting: int = 0
    seconds: float = 0.0
    """Of the first of them."""


def readiness(checks: tuple[Check, ...]) -> Readiness:
    return Readiness("ready" if all(check.ok for check in checks) else "not_ready", checks)
