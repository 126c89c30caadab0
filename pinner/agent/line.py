"""The agent's end of a connection: its answer, and signs of life until then."""

import select
import socket
import threading
from contextlib import suppress

from pinner.agent import wire

PULSE_SECONDS = 2.0
"""Time between two signs of life of a connection. A caller gives up after several of them are missing."""


class Line:
    """Sends whole messages only, whichever thread sends them."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self._guard = threading.Lock()
        self._closed = False
        self._writable = select.poll()
        self._writable.register(peer, select.POLLOUT)

    def send(self, seconds: float, /, **parts: object) -> None:
        """Send a message; see ``wire.send``."""
        with self._guard:
            wire.send(self._peer, seconds, **parts)

    def pulse(self) -> None:
        """Send a sign of life, unless a message is on its way or the caller does not read. Never blocks nor raises."""
        if not self._guard.acquire(blocking=False):
            return
        try:
            # A connection that can be written takes a message as short as this one as a whole.
            if not self._closed and self._writable.poll(0):
                with suppress(OSError):
                    self._peer.send(wire.ALIVE, socket.MSG_DONTWAIT)
        finally:
            self._guard.release()

    def end(self) -> None:
        """Send no sign of life any more: the connection is about to be closed."""
        with self._guard:
            self._closed = True
