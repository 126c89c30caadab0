"""The planner's part of a kind of setting (model/kinds.py)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from pinner.model.change import StateChange, Target
from pinner.model.plan.plan import LeftOut, Plan, Wanted
from pinner.model.states import State
from pinner.planning.request.context import Context


class _Known(Protocol):
    @property
    def target(self) -> Target: ...


K = TypeVar("K", bound=_Known)


@dataclass(frozen=True, slots=True)
class Additions:
    """The changes follow from ``wanted``."""

    wanted: tuple[Wanted, ...] = ()
    skipped: tuple[LeftOut, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, whys: Mapping[K, str], wanted: Callable[[K], Wanted], warnings: Iterable[str] = ()) -> "Additions":
        """``whys``: why pinner leaves each as it is; else empty."""
        return cls(
            wanted=tuple(wanted(each) for each, why in whys.items() if not why),
            skipped=tuple(LeftOut(each.target, why) for each, why in whys.items() if why),
            warnings=tuple(warnings),
        )


@dataclass(frozen=True, slots=True)
class PlanRow:
    objection: Callable[[StateChange, Plan, Context], str]
    """Why an agent does not make the change; else empty."""
    commands: Callable[[Target, State], Iterator[str]]
    additions: Callable[[Plan, Context], Additions] | None = None
    """Where the snapshot has the kind; None: strategies plan it."""
    noun: str = ""
    expected: str = ""
    """Where the snapshot lacks the kind."""
    wanted: Callable[[Any], Iterable[Wanted]] | None = None
    """Of a setting inside guests: what one guest gets by its GuestSettings."""
