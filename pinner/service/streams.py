"""The streams that a pinner server sends: lines, and server-sent events.

They are split by hand: only a line feed ends a line, and guests' names may contain characters that other readers take
for a line end (U+2028).
"""

from collections.abc import Iterator


def lines(chunks: Iterator[bytes]) -> Iterator[str]:
    """The complete lines, each with its line end."""
    rest = b""
    for chunk in chunks:
        *complete, rest = (rest + chunk).split(b"\n")
        yield from (line.decode() + "\n" for line in complete)


def server_sent_events(chunks: Iterator[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Name and data of each server-sent event."""
    rest = b""
    for chunk in chunks:
        *blocks, rest = (rest + chunk).split(b"\n\n")
        for block in blocks:
            fields = {name: value for name, _, value in (line.partition(b": ") for line in block.split(b"\n"))}
            yield fields.get(b"event", b""), fields.get(b"data", b"")
