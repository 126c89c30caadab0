"""Large values as compressed JSON (zlib, RFC 1950)."""

import zlib
from typing import TypeVar

from pinner import codec

T = TypeVar("T")

LEVEL = 6
"""zlib's default: level 9 saves 2 % more and takes twice the time."""


def pack(body: bytes) -> bytes:
    """JSON as it is stored."""
    return zlib.compress(body, LEVEL)


def unpack(kind: type[T], packed: bytes) -> T:
    """The value that is stored. Raises zlib.error or ValueError where it is damaged, which ``reading`` translates."""
    value: T = codec.adapter(kind).validate_json(zlib.decompress(packed))
    return value
