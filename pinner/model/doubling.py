"""Waits that double with each failure."""

from datetime import timedelta
from typing import TypeVar

Wait = TypeVar("Wait", float, timedelta)

_MOST = 20
"""More doublings could overflow, and every longest wait is shorter."""


def doubled(first: Wait, times: int, longest: Wait) -> Wait:
    return min(first * (1 << min(times, _MOST)), longest)
