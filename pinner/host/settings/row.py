"""The host's part of a kind of setting (model/kinds.py): how it is read and set."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from pinner.model.change import Target
from pinner.model.guest.guest import Guest
from pinner.model.kinds import State
from pinner.model.processes.process import Process
from pinner.model.settings.cards import RefusedSetting
from pinner.model.settings.guest_rps import GuestRps

S = TypeVar("S", bound=State)


class Agents(Protocol):
    """The part of Libvirt that settings inside guests need."""

    def ask_guest_agent(self, guest: str, command: str) -> str:
        """The answer of the guest's agent to a command, both as JSON. Raises Gone, Busy, ApplyFailed."""


@dataclass(frozen=True, slots=True)
class Access:
    """The way to a machine."""

    root: Path
    agents: Agents | None = None
    """The agents of its guests; None: libvirt cannot be reached."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts of a snapshot that its settings need."""

    root: Path
    processes: tuple[Process, ...] = ()
    guests: tuple[Guest, ...] = ()
    packets: Mapping[int, int] = field(default_factory=dict)
    """The packets that each card had received, by the index of its interface."""
    elapsed: Callable[[], float] = float
    """The seconds since ``packets`` were counted."""
    ask_guests: Callable[[tuple[Guest, ...]], tuple[GuestRps, ...]] | None = None
    """Asks the agents of guests about RPS; None: they are not asked."""
    refused: list[RefusedSetting] = field(default_factory=list)
    """Gets what drivers of cards refuse to tell."""


@dataclass(frozen=True, slots=True)
class HostRow(Generic[S]):
    """How a kind is read and set."""

    state: Callable[[Access, Target], S]
    """The present state. Raises Gone; ApplyFailed where the driver does not answer."""
    set_state: Callable[[Access, Target, S], None]
    """Sets the state and reads it back. Raises Gone, NotPermitted, ApplyFailed."""
    read: Callable[[Facts], object] | None = None
    """The kind's field of a snapshot; None: a snapshot has the kind elsewhere."""
