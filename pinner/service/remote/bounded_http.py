"""Answers over HTTP that are bounded in time and size: the timeouts of httpx are for one part each, and a server that
sends a byte a second would meet them."""

import ssl
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import httpcore
import httpx

KEEP_SECONDS = 5.0
ENCODINGS = ("identity", "gzip")
"""One at a time: two, one in the other, can hide gigabytes."""
_PIECE = 1 << 14
_GZIP = 31
_end: ContextVar[float | None] = ContextVar("end", default=None)


class TooLarge(ValueError):
    """An answer has more bytes than the caller takes."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """All that this thread sends and receives on bounded transports ends in time, or raises httpx.TimeoutException."""
    before = _end.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _end.reset(before)


def content(answer: httpx.Response, limit: int) -> bytes:
    """Raises TooLarge beyond ``limit`` bytes, compressed or not."""
    received = bytearray()
    for part in answer.iter_raw():
        received += part
        if len(received) > limit:
            raise TooLarge(f"it has more than {limit} bytes")
    if encoding(answer) != "gzip":
        return bytes(received)
    try:
        unpacked = zlib.decompressobj(_GZIP).decompress(received, limit + 1)
    except zlib.error as error:
        raise httpx.DecodingError(str(error)) from None
    if len(unpacked) > limit:
        raise TooLarge(f"it has more than {limit} bytes")
    return unpacked


def encoding(answer: httpx.Response) -> str:
    """Raises httpx.DecodingError for any but ENCODINGS."""
    name = str(answer.headers.get("Content-Encoding", "identity")).lower()
    if name not in ENCODINGS:
        raise httpx.DecodingError(f"content encoding {name[:80]!r} instead of {' or '.join(ENCODINGS)}")
    return name


class BoundedTransport(httpx.HTTPTransport):
    """HTTP/1.1 over TCP or a Unix socket, bounded by ``deadline``."""

    def __init__(self, tls: ssl.SSLContext | None, socket: str) -> None:
        super().__init__(verify=tls or False, trust_env=False)
        # httpx has no parameter for the network backend of its pool.
        self._pool = httpcore.ConnectionPool(
            ssl_context=tls, uds=socket or None, keepalive_expiry=KEEP_SECONDS, network_backend=_Backend()
        )


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        # In pieces: the stream below has the timeout for each part that the server takes.
        for at in range(0, len(buffer), _PIECE):
            self._stream.write(buffer[at : at + _PIECE], _left(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, _left(timeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _Backend(httpcore.SyncBackend):
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        return _Stream(super().connect_tcp(host, port, _left(timeout), local_address, socket_options))

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(super().connect_unix_socket(path, _left(timeout), socket_options))


def _left(timeout: float | None) -> float | None:
    end = _end.get()
    if end is None:
        return timeout
    seconds = end - time.monotonic()
    if seconds <= 0:
        raise httpcore.ReadTimeout("timed out")
    return seconds if timeout is None else min(timeout, seconds)
