"""The interface of a strategy, and the installed strategies.

A strategy is a class without arguments, named by an entry point of the group ``pinner.strategies``. pinner's own
strategies and plug-ins are found the same way.
"""

from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import ClassVar, Protocol

from pinner.model.errors import PinnerError
from pinner.model.objective import Optimality
from pinner.model.plan import Isolation, LeftOut, Roles, Wanted
from pinner.planning.context import Context

GROUP = "pinner.strategies"
COMMON = ("housekeeping", "emulator", "busy_threshold", "guests", "processes")
"""The fields of a request that all of pinner's own strategies read."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The placement that a strategy wants. It does not depend on the host's present affinities.

    Each guest of the context is in ``wanted`` with all its parts, or once in ``unplaced``: see rules.
    """

    roles: Roles
    wanted: tuple[Wanted, ...]
    unplaced: tuple[LeftOut, ...] = ()
    warnings: tuple[str, ...] = ()
    isolation: Isolation | None = None
    blocked: str = ""
    """Why the answer cannot be applied as the host is now; empty where it can."""
    optimality: Optimality | None = None
    """How good the allocation of CPUs of their own to vCPUs is; None where vCPUs float."""


class Strategy(Protocol):
    """A way to divide a host's CPUs among guests and processes."""

    name: ClassVar[str]
    summary: ClassVar[str]
    """One sentence for people."""
    parameters: ClassVar[tuple[str, ...]]
    """The fields of a request that it reads."""
    pursues: ClassVar[tuple[str, ...]]
    """The terms of the objective that it tries to lower, besides guests without a place and threads that disturb each
    other. A plan that makes another term worse is not worse. A plug-in may lack this: none."""

    def place(self, context: Context) -> Answer:
        """The wanted placement; pure. Raises Invalid for a parameter that this host cannot have, NoFit."""


@cache
def installed() -> dict[str, Strategy]:
    """Every installed strategy by name. Raises PinnerError, with the plug-in's name, where one does not load."""
    found = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            strategy: Strategy = point.load()()
        except Exception as error:
            raise PinnerError(f"strategy plug-in {point.name} ({point.value}) does not load: {error!r}") from error
        found[strategy.name] = strategy
    return found
