"""Work that a server does by itself once a day."""

import logging
from collections.abc import Callable

from pinner.model.errors import PinnerError
from pinner.worker import Worker

LOG = logging.getLogger(__name__)

FIRST_SECONDS = 60.0
"""The first time is soon after the start, because a server may never run for a whole day."""

DAY_SECONDS = 86400.0


class Daily(Worker):
    """A thread that does some work once a day until it is stopped."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        super().__init__(name)  # without a limit: a purge of a large database takes as long as it takes
        self._work = work

    def _repeat(self) -> None:
        wait = FIRST_SECONDS
        while not self._stop.wait(wait):
            wait = DAY_SECONDS
            try:
                self._work()
            except PinnerError as error:
                LOG.warning("%s failed, next attempt in a day: %s", self._thread.name, error)
            except Exception:
                LOG.exception("%s failed, next attempt in a day", self._thread.name)
