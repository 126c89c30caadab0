"""Waits that double with each failure."""

from datetime import timedelta
from typing import TypeVar

Wait = TypeVar("Wait", float, timedelta)

_MOST = 20
"""So often a wait doubles at most. Every longest wait is shorter, and no number overflows."""


def doubled(first: Wait, times: int, longest: Wait) -> Wait:
    """The ``first`` wait, doubled so many ``times``, and at most the ``longest``."""
    return min(first * (1 << min(times, _MOST)), longest)
