"""The messages between an agent and its callers: JSON over a Unix socket, one call in each connection.

    -> {"call": NAME, ...arguments}
    <- {"alive": true}                     every two seconds until the answer
    <- {"progress": Entry, "total": N}     any number of times
    <- {"result": VALUE} or {"error": {"code", "message", "details"}}

Each message is its length in four bytes, the highest first, and JSON text. Nothing is unpickled: the agent runs as
root, and its caller does not."""

import json
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pydantic_core

from pinner import codec
from pinner.model.errors import Invalid

PULSE_SECONDS = 2.0

MAX_REQUEST = 32 * 1024 * 1024
"""Bytes of a call. The plan of a host with 10,000 threads takes about 5 MiB."""

MAX_ANSWER = 256 * 1024 * 1024
"""Bytes of an answer. The snapshot of a host with 10,000 threads takes about 3 MiB."""

MAX_VALUES = 2_000_000
"""Values in a call: in 32 MiB of text, more can take thirty times its length. The largest plan has 1.4 million."""

_LENGTH = struct.Struct("!I")
_PIECE = 1 << 18

ALIVE = _LENGTH.pack(14) + b'{"alive":true}'


class Overdue(EOFError):
    """It is still connected."""


def message(**parts: object) -> memoryview:
    body = b",".join(json.dumps(name).encode() + b":" + _json(value) for name, value in parts.items())
    return memoryview(_LENGTH.pack(len(body) + 2) + b"{" + body + b"}")


def _json(value: object) -> bytes:
    return b"[" + b",".join(map(_json, value)) + b"]" if isinstance(value, tuple) else codec.dump(value)


def push(peer: socket.socket, text: memoryview, seconds: float | None = None) -> memoryview:
    """Send what the peer reads within ``seconds`` (None: all); returns the rest. Raises EOFError at a disconnect."""
    deadline = time.monotonic() + (seconds or 0.0)
    # The socket's own timeout stays as it is: another thread may be reading.
    writable = select.poll()
    writable.register(peer, select.POLLOUT)
    try:
        while text and writable.poll(None if seconds is None else max(deadline - time.monotonic(), 0.0) * 1000):
            text = text[peer.send(text, socket.MSG_DONTWAIT) :]
    except BlockingIOError:
        return text
    except OSError as error:
        raise EOFError(f"the peer does not read: {error}") from None
    return text


def send(peer: socket.socket, seconds: float | None = None, /, **parts: object) -> None:
    """Raises EOFError where the peer has disconnected, Overdue."""
    if push(peer, message(**parts), seconds):
        raise Overdue("the peer does not read: timed out")


def receive(
    peer: socket.socket,
    limit: int = MAX_ANSWER,
    seconds: float | None = None,
    admit: Callable[[int], object] = lambda _: None,
    values: int | None = None,
) -> dict[str, Any]:
    """``admit`` gets the length before the message is read, and may raise. Raises EOFError where the peer has
    disconnected, Overdue, and Invalid for more than ``limit`` bytes, or no JSON object."""
    deadline = None if seconds is None else time.monotonic() + seconds
    (length,) = _LENGTH.unpack(_read(peer, _LENGTH.size, deadline))
    if length > limit:
        raise Invalid("message", length, f"at most {limit} bytes")
    admit(length)
    return parse(_read(peer, length, deadline), values)


def parse(text: bytes, values: int | None = None) -> dict[str, Any]:
    """Raises Invalid for no JSON object, NaN, infinity, unpaired surrogates, nesting deeper than the protocol's, and
    more than about ``values`` values."""
    if values is not None and (count := codec.most_values(text)) > values:
        raise Invalid("message", count, f"at most {values} values")
    try:
        message = pydantic_core.from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise Invalid("message", f"{len(text)} bytes", f"a JSON object ({error})") from None
    if not isinstance(message, dict):
        raise Invalid("message", type(message).__name__, "a JSON object")
    return message


def _read(peer: socket.socket, length: int, deadline: float | None) -> bytes:
    received = bytearray()
    try:
        while len(received) < length:
            peer.settimeout(None if deadline is None else max(deadline - time.monotonic(), 0.001))
            piece = peer.recv(min(length - len(received), _PIECE))
            if not piece:
                raise EOFError("the peer has disconnected")
            received += piece
    except TimeoutError:
        raise Overdue("the peer does not send: timed out") from None
    except OSError as error:
        raise EOFError(f"the peer does not send: {error}") from None
    return bytes(received)


class Line:
    """The agent's end of a connection. Any thread may send whole messages; the unread rest of one goes first."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer
        self._guard = threading.Lock()
        self._rest = memoryview(b"")
        self._closed = False

    def send(self, seconds: float, /, **parts: object) -> None:
        """Raises EOFError where the caller has disconnected or does not read within ``seconds``."""
        text = message(**parts)
        with self._guard:
            self._rest = push(self._peer, memoryview(bytes(self._rest) + bytes(text)), seconds)
            if self._rest:
                raise Overdue("the peer does not read: timed out")

    def offer(self, seconds: float, /, **parts: object) -> None:
        """Leaves the message out while the caller has not read the last one. Raises EOFError."""
        with self._guard:
            self._rest = push(self._peer, self._rest, 0.0)
            if not self._rest:
                self._rest = push(self._peer, message(**parts), seconds)

    def pulse(self) -> None:
        """A sign of life, unless a message is on its way or the caller does not read. Never blocks nor raises."""
        if not self._guard.acquire(blocking=False):
            return
        try:
            if not self._closed:
                with suppress(EOFError):
                    self._rest = push(self._peer, self._rest or memoryview(ALIVE), 0.0)
        finally:
            self._guard.release()

    def end(self) -> None:
        with self._guard:
            self._closed = True
