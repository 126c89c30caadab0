"""The addition of one kind of remedy to a plan. Pure."""

from dataclasses import dataclass

from pinner.model.plan.plan import LeftOut, Wanted


@dataclass(frozen=True, slots=True)
class Additions:
    """What one kind of remedy adds to a plan. The changes follow from ``wanted``."""

    wanted: tuple[Wanted, ...] = ()
    """The state of each setting after the plan."""
    skipped: tuple[LeftOut, ...] = ()
    """The settings that the plan would have to change and cannot."""
    warnings: tuple[str, ...] = ()
    """What an operator should know before an apply."""
