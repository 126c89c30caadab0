"""The host's part of a kind of setting (model/kinds.py): how it is read and set."""

import errno
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from pinner.host.kernel import beneath, files
from pinner.host.settings.inside.agent import Agents
from pinner.host.settings.inside.guests import Question
from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Gone
from pinner.model.guest.guest import Guest
from pinner.model.machine.interrupts import Balancer
from pinner.model.machine.process import Process
from pinner.model.settings.cards import RefusedSetting
from pinner.model.settings.inside import GuestSettings
from pinner.model.states import State

S = TypeVar("S", bound=State)


class AskGuests(Protocol):
    def __call__(
        self, guests: tuple[Guest, ...], questions: Mapping[str, Question], among: Collection[str] | None = None
    ) -> Mapping[str, tuple[GuestSettings, ...]]:
        """``among``: UUIDs of the guests to ask (None: all). The answers have the keys of the questions."""


@dataclass(frozen=True, slots=True)
class Access:
    root: Path
    agents: Agents | None = None
    """None: libvirt cannot be reached."""


@dataclass(frozen=True, slots=True)
class Facts:
    root: Path
    processes: tuple[Process, ...] = ()
    balancers: tuple[Balancer, ...] = ()
    guests: tuple[Guest, ...] = ()
    governors: Mapping[int, str] = field(default_factory=dict)
    ask_guests: AskGuests | None = None
    """None: no guest is asked."""
    refused: list[RefusedSetting] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class HostRow(Generic[S]):
    state: Callable[[Access, Target], S]
    """Raises Gone; ApplyFailed also where a driver or service does not answer."""
    set_state: Callable[[Access, Target, S], None]
    """Sets and reads back. Raises Gone, NotPermitted, ApplyFailed, Invalid for another target."""
    read: Callable[[Facts], object] | None = None
    """The value of the snapshot's field, None where it is not known (another root, an old kernel)."""
    inside: Question | None = None
    """In place of ``read``, for a setting inside guests. Without both, there is no field."""


@contextmanager
def folder_of(target: Target, top: Path, path: str) -> Iterator[int]:
    """The target's folder below ``top``, through no link. Raises Gone."""
    with ExitStack() as opened:
        try:
            folder = opened.enter_context(beneath.folder(top, path))
        except OSError as error:
            files.known(error)
            raise Gone(str(target)) from None
        yield folder


@contextmanager
def written(
    target: Target,
    state: S,
    read_back: Callable[[], S],
    hints: Mapping[int, str],
    ended: Collection[int] = (errno.ENOENT,),
) -> Iterator[None]:
    """For a block that writes the state to a file of the kernel. Raises Gone for an error of ``ended``, and ApplyFailed
    where the kernel refuses the state (with its hint), or has another one afterwards."""
    asked = f"CPUs {state or 'none'}" if isinstance(state, CpuSet) else str(state)
    try:
        yield
    except OSError as error:
        if error.errno in ended:
            raise Gone(str(target)) from None
        hint = hints.get(error.errno or 0, "")
        raise ApplyFailed(str(target), f"the kernel refuses {asked}: {error.strerror}{hint}") from None
    if (now := read_back()) != state:
        says = str(now) or "none"
        raise ApplyFailed(str(target), f"asked for {asked}, the kernel says {says}", granted=says)
