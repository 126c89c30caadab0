"""A clock that goes on by looking at it."""

import threading
from datetime import datetime, timedelta

from support.values import NOON


class Clock:
    """Every look at it is a step later; threads may look at once."""

    def __init__(self, step: timedelta) -> None:
        self.at = NOON
        self._step = step
        self._guard = threading.Lock()

    def __call__(self) -> datetime:
        with self._guard:
            self.at += self._step
            return self.at
