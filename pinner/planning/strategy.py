"""What a strategy is, and which are installed.

A strategy is a class without arguments, named by an entry point of the group ``pinner.strategies``; pinner's own are
found the same way as anybody else's.
"""

from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import ClassVar, Protocol

from pinner.model.errors import PinnerError
from pinner.model.plan import Isolation, LeftOut, Roles, Wanted
from pinner.planning.context import Context

GROUP = "pinner.strategies"
COMMON = ("housekeeping", "emulator", "busy_threshold", "guests", "processes")
"""The fields of a request that every strategy of ours reads."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Where a strategy wants things, before anybody looks at where they are."""

    roles: Roles
    wanted: tuple[Wanted, ...]
    unplaced: tuple[LeftOut, ...] = ()
    warnings: tuple[str, ...] = ()
    isolation: Isolation | None = None
    blocked: str = ""
    """Why the answer cannot be applied as things are; empty: it can."""


class Strategy(Protocol):
    """A way to share a host's CPUs out."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """One sentence for people."""
    parameters: ClassVar[tuple[str, ...]]
    """The fields of a request that it reads."""

    def place(self, context: Context) -> Answer:
        """Where everything belongs; pure. Raises Invalid for a parameter that this host cannot have, NoFit."""


@cache
def installed() -> dict[str, Strategy]:
    """Every installed strategy by name. Raises PinnerError that names a plug-in which does not load."""
    found = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            strategy: Strategy = point.load()()
        except Exception as error:
            raise PinnerError(f"strategy plug-in {point.name} ({point.value}) does not load: {error!r}") from error
        found[strategy.name] = strategy
    return found
