"""The agent's end of a connection: its answer, and signs of life until then."""

import socket
import threading
from contextlib import suppress

from pinner.agent.socket import wire

PULSE_SECONDS = 2.0
"""Time between two signs of life of a connection. A caller gives up after several of them are missing."""

_NOTHING = memoryview(b"")
_ALIVE = memoryview(wire.ALIVE)


class Line:
    """Sends whole messages only, whichever thread sends them. It keeps the rest of a message that the caller has not
    read in time, and sends the rest before any other message."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self._guard = threading.Lock()
        self._rest = _NOTHING
        self._closed = False

    def send(self, seconds: float, /, **parts: object) -> None:
        """Send a message, however little the caller has read before. Raises EOFError where the caller has disconnected
        or does not read within ``seconds``."""
        text = wire.message(**parts)
        with self._guard:
            self._rest = wire.push(self._peer, memoryview(bytes(self._rest) + bytes(text)), seconds)
            if self._rest:
                raise wire.Overdue("the peer does not read: timed out")

    def offer(self, seconds: float, /, **parts: object) -> None:
        """Send a message that the caller can do without: it is left out while the caller has not read the last one.

        Waits for the caller at most ``seconds``. Raises EOFError where the caller has disconnected.
        """
        with self._guard:
            self._rest = wire.push(self._peer, self._rest, 0.0)
            if not self._rest:
                self._rest = wire.push(self._peer, wire.message(**parts), seconds)

    def pulse(self) -> None:
        """Send a sign of life, unless a message is on its way or the caller does not read. Never blocks nor raises."""
        if not self._guard.acquire(blocking=False):
            return
        try:
            if not self._closed:
                with suppress(EOFError):
                    self._rest = wire.push(self._peer, self._rest or _ALIVE, 0.0)
        finally:
            self._guard.release()

    def end(self) -> None:
        """Send no sign of life any more: the connection is about to be closed."""
        with self._guard:
            self._closed = True
