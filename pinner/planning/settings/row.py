"""The planner's part of a kind of setting (model/kinds.py)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pinner.model.change import StateChange, Target
from pinner.model.kinds import State
from pinner.model.plan.plan import LeftOut, Plan, Wanted
from pinner.planning.request.context import Context


@dataclass(frozen=True, slots=True)
class Additions:
    """What one kind adds to a plan. The changes follow from ``wanted``."""

    wanted: tuple[Wanted, ...] = ()
    skipped: tuple[LeftOut, ...] = ()
    """The settings that the plan would have to change and cannot."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PlanRow:
    """How a kind is planned."""

    objection: Callable[[StateChange, Plan, Context], str]
    """Why an agent does not make a change that the request asks for; empty where it does."""
    commands: Callable[[Target, State], Iterator[str]]
    """For a shell."""
    additions: Callable[[Plan, Context], Additions] | None = None
    """What a request for the kind adds, where the snapshot has the kind; None: strategies plan it."""
    noun: str = ""
    """The settings, for people."""
    expected: str = ""
    """What the request needs, where the snapshot does not have the kind."""
