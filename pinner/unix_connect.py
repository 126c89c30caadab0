"""A connect to a Unix socket whose queue of connections is full: how long it waits for room (unix(7))."""

import socket
import struct

_TIMEVAL = struct.Struct("2l")


def connect(connecting: socket.socket, address: str, seconds: float) -> None:
    """Raises BlockingIOError where the queue has no room for so many seconds, and OSError. After settimeout, Python
    connects without blocking, and a full queue is an error at once: so call settimeout after this."""
    limit = _TIMEVAL.pack(*divmod(max(1, int(seconds * 1e6)), 1_000_000))
    connecting.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    connecting.connect(address)
    connecting.getpeername()  # a signal ends the wait, and Python takes that for a connection
