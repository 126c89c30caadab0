"""Work that must succeed once before a database is used, and that is tried again at each use until then."""

import threading
from collections.abc import Callable

from sqlalchemy import Engine

PREPARATION = "pinner_preparation"
"""The key of the engine's execution options that holds its Preparation."""


class Preparation:
    """The preparation of one engine: its file is created and its schema upgraded."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._guard = threading.RLock()
        self._done = False
        self._under_way = False

    def __call__(self) -> None:
        """Do the work unless it is done. The work itself may use the engine. Raises what the work raises."""
        if self._done:
            return
        with self._guard:
            if self._done or self._under_way:
                return
            self._under_way = True
            try:
                self._work()
                self._done = True
            finally:
                self._under_way = False


def prepare(engine: Engine) -> None:
    """Do what the engine still needs before its use."""
    preparation = engine.get_execution_options().get(PREPARATION)
    if preparation is not None:
        preparation()
