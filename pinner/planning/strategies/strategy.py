"""The interface of a strategy, and the installed ones: entry points of the group ``pinner.strategies``."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import ClassVar, Protocol, cast

from pinner.model.errors import Invalid, NotFound
from pinner.model.plan.objective import Optimality
from pinner.model.plan.plan import Isolation, LeftOut, Roles, Wanted
from pinner.planning.request.context import Context

GROUP = "pinner.strategies"
OWN = {
    "isolated": "pinner.planning.strategies.isolated:Isolated",
    "numa-local": "pinner.planning.strategies.numa_local:NumaLocal",
    "optimal": "pinner.planning.strategies.optimal:Optimal",
    "shared-pool": "pinner.planning.strategies.shared_pool:SharedPool",
}
"""pinner's own, known without a search for entry points."""
COMMON = ("housekeeping", "emulator", "busy_threshold", "guests", "processes")
"""Fields of a request that all of them read."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A strategy's placement, whatever the host's present affinities. Each guest of the context is in ``wanted`` with
    all its parts, or once in ``unplaced``."""

    roles: Roles
    wanted: tuple[Wanted, ...]
    unplaced: tuple[LeftOut, ...] = ()
    warnings: tuple[str, ...] = ()
    isolation: Isolation | None = None
    blocked: str = ""
    optimality: Optimality | None = None
    """None where vCPUs float."""


class Strategy(Protocol):
    name: ClassVar[str]
    summary: ClassVar[str]
    parameters: ClassVar[tuple[str, ...]]
    """Fields of a request that it reads."""
    pursues: ClassVar[tuple[str, ...]]
    """Terms that it tries to lower, besides those of every strategy. A plug-in may lack this."""

    def place(self, context: Context) -> Answer:
        """The wanted placement; pure. Raises Invalid for a parameter that this host cannot have, NoFit."""


class Unavailable:
    """A plug-in that does not load: lists name it, nothing is placed with it."""

    parameters: ClassVar[tuple[str, ...]] = ()
    pursues: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        self.summary = f"not available, because {why}"

    def place(self, _context: Context) -> Answer:
        raise self.refusal()

    def refusal(self) -> Invalid:
        return Invalid("strategy", self.name, f"a strategy that is available; this one is {self.summary}")


class _Installed(Mapping[str, Strategy]):
    """Each is imported at its first use. The search for plug-ins takes as long as a plan, so only a name that is none
    of pinner's own, or a look at all names, causes it."""

    def __getitem__(self, name: str) -> Strategy:
        return _own(name) if name in OWN else _plug_ins()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted((*OWN, *_plug_ins())))

    def __len__(self) -> int:
        return len(OWN) + len(_plug_ins())


_INSTALLED = _Installed()


def installed() -> Mapping[str, Strategy]:
    return _INSTALLED


def require_known(name: str, strategies: Mapping[str, Strategy]) -> None:
    """Raises NotFound, and Invalid for a plug-in that does not load."""
    if name not in strategies:
        raise NotFound("strategy", name, tuple(sorted(strategies)))
    if isinstance(strategy := strategies[name], Unavailable):
        raise strategy.refusal()


@cache
def _own(name: str) -> Strategy:
    module, kind = OWN[name].split(":")
    strategy: Strategy = getattr(import_module(module), kind)()
    return strategy


@cache
def _plug_ins() -> dict[str, Strategy]:
    """None replaces one of pinner's own."""
    from importlib.metadata import entry_points  # imports the parsers of mail and of zip files

    plug_ins: dict[str, Strategy] = {}
    broken: dict[str, Strategy] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        if point.name in OWN:
            continue
        try:
            strategy: Strategy = point.load()()
            # What lists read: a strategy without it would fail there.
            described = strategy.name, strategy.summary, *strategy.parameters
            if not all(isinstance(each, str) for each in described):
                raise TypeError("its name, its summary and its parameters must be texts")
        except Exception as error:  # the other strategies do not depend on it
            why = f"plug-in {point.name} ({point.value}) does not load: {error!r}"
            # Its name differs from object to object, while a strategy's name is its class's.
            broken[point.name] = cast("Strategy", Unavailable(point.name, why))
        else:
            plug_ins[strategy.name] = strategy
    return {name: each for name, each in (broken | plug_ins).items() if name not in OWN}
