"""The log of oslo.messaging's connection to the broker, as far as people need it. It imports no oslo.messaging, before
which the backend of oslo.service must be chosen."""

import logging
import time
from collections.abc import Callable

from pinner.render import visible
from pinner.repeated import Repeated

LOG = logging.getLogger(__name__)

BROKER_LOG = "oslo.messaging._drivers.impl_rabbit"
MESSAGE_LOGS = ("oslo_messaging.notify.listener", "oslo_messaging.notify.dispatcher")
"""The logs about single messages: any program with access to the broker can cause thousands of lines."""
MESSAGE_SECONDS = 60.0
REMIND_SECONDS = 600.0
_MAX_REASON = 200
_UNREADABLE = "Failed to process message"
"""The begin of oslo.messaging's error about a message that it cannot decode, and drops."""


class MessageLogFilter(logging.Filter):
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._next = clock()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        now = self._clock()
        if now < self._next:
            return False
        self._next = now + MESSAGE_SECONDS
        return True


class ConnectionLogFilter(logging.Filter):
    """Passes the first warning of each outage of the broker, and then one in REMIND_SECONDS."""

    def __init__(self, lost: Callable[[str], None] = lambda _: None) -> None:
        super().__init__()
        self._lost = lost
        self._unreadable = Repeated(LOG)
        self._down = False
        self._logged = 0.0
        self.latest = time.monotonic()
        """oslo.messaging logs each attempt to connect."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        self.latest = time.monotonic()
        if text.startswith(_UNREADABLE):
            # It says nothing about the connection, and any program with access to the broker can cause thousands.
            reason = str(record.exc_info[1]) if record.exc_info else ""
            self._unreadable.warn("a message that cannot be decoded was dropped: %s", visible(reason[:_MAX_REASON]))
            return False
        if record.levelno >= logging.WARNING:
            was_up, self._down = not self._down, True
            if was_up:
                self._lost(text)
            if was_up or time.monotonic() - self._logged > REMIND_SECONDS:
                self._logged = time.monotonic()
                return True
            return False
        if "econnected" in text:
            self._down = False
        return True

    def connected(self) -> None:
        self._down = False
