"""The facts by which the descendants of a process are found, also after the process has ended."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Lineage:
    """The facts of a target at the moment when it got its mask. host.lineage compares other processes with them."""

    boot: str
    """The boot id of the kernel: process ids and start times count anew after each boot."""
    since: int
    """The moment, in clock ticks after boot. Only a process that started later can have inherited the mask."""
    service: str = ""
    """Of a process: the cgroup of its systemd service. Every process there descends from the service. Empty: none."""
    layout: str = ""
    """Of a process: the random addresses that it got from its last exec. A fork has the same ones. Empty: unknown."""
    session: int = 0
    """Of a process: the id of its session. 0: unknown."""


@dataclass(frozen=True, slots=True)
class Descendants(Generic[T]):
    """The descendants of a process by their ids, or their threads."""

    sure: tuple[T, ...] = ()
    """Those that descend from the process."""
    unsure: tuple[T, ...] = ()
    """Those of which the facts do not tell whether they descend from the process or only from their present parent."""


def may_inherit_of_guest(started: int, since: Lineage | None, seen: Lineage | None) -> bool:
    """Whether a thread of a guest may have inherited the mask that another part of the guest got at ``since``.

    ``started`` is the thread's start, ``seen`` when the thread was found. None: not known.
    """
    return since is None or (seen is not None and seen.boot != since.boot) or started >= since.since
