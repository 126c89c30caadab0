"""A clock that advances each time it is read."""

import threading
from datetime import datetime, timedelta

from support.values import NOON


class Clock:
    """Each reading is one step later than the one before. Several threads may read it."""

    def __init__(self, step: timedelta) -> None:
        self.at = NOON
        self._step = step
        self._guard = threading.Lock()

    def __call__(self) -> datetime:
        with self._guard:
            self.at += self._step
            return self.at
