"""The streams that a pinner server sends: lines, and server-sent events.

Only a line feed ends a line: guests' names may contain characters that other readers take for a line end (U+2028).
"""

from collections.abc import Iterator

from pinner.model.errors import PinnerError

MAX_PART = 16 * 1024 * 1024
"""Bytes of a line or an event."""


def lines(chunks: Iterator[bytes]) -> Iterator[str]:
    """The complete ones, each with its line end. Raises PinnerError."""
    return (line.decode() + "\n" for line in _parts(chunks, b"\n"))


def server_sent_events(chunks: Iterator[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Name and data of each. Raises PinnerError."""
    for block in _parts(chunks, b"\n\n"):
        fields = {name: value for name, _, value in (line.partition(b": ") for line in block.split(b"\n"))}
        yield fields.get(b"event", b""), fields.get(b"data", b"")


def _parts(chunks: Iterator[bytes], end: bytes) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *complete, rest = (rest + chunk).split(end)
        yield from complete
        if len(rest) > MAX_PART:
            raise PinnerError(f"the server's answer has {len(rest)} bytes without an end; at most {MAX_PART} are read")
