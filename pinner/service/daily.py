"""Work that a server does by itself once a day."""

import logging
import threading
from collections.abc import Callable

from pinner.heartbeat import Heartbeat
from pinner.model.errors import PinnerError

LOG = logging.getLogger(__name__)

FIRST_SECONDS = 60.0
"""The first time is soon after the start, because a server may never run for a whole day."""

DAY_SECONDS = 86400.0


class Daily:
    """A thread that does some work once a day until it is stopped."""

    def __init__(self, name: str, work: Callable[[], None]) -> None:
        self._work = work
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name=name, daemon=True)
        self.heartbeat = Heartbeat(self._thread)
        """Without a limit: a purge of a large database takes as long as it takes."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End; work under way is not waited for."""
        self.heartbeat.end()
        self._stop.set()

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
