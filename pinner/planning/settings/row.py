"""The planner's part of a kind of setting (model/kinds.py)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pinner.model.change import StateChange, Target
from pinner.model.kinds import State
from pinner.model.plan.plan import LeftOut, Plan, Wanted
from pinner.planning.request.context import Context


@dataclass(frozen=True, slots=True)
class Additions:
    """The changes follow from ``wanted``."""

    wanted: tuple[Wanted, ...] = ()
    skipped: tuple[LeftOut, ...] = ()
    warnings: tuple[str, ...] = ()


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
