"""Refuses messages of the broker by their properties, before their body is decoded.

amqp decodes the properties of a message while it reads the connection. An error there leaves the connection in the
middle of the message: the broker sends the message again on the next connection, without end. kombu decodes a body by
the type and the encoding that the properties name, and some of Python's encodings decompress.
"""

import struct
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import kombu.serialization
from amqp import serialization  # type: ignore[import-untyped]

from pinner.nova.broker.decompression import MAX_BYTES

JSON = "application/json"
"""The type of every notification of oslo.messaging."""
_REFUSED = "application/x-pinner-refused"
_REASON = f"its type is not {JSON}, it has more than {MAX_BYTES} bytes, or its properties are not those of AMQP"
_SIZE = struct.Struct(">Q")
"""The size of the body, which is before the properties."""

Decode = Callable[[Any, int], tuple[Mapping[str, object], int]]
"""Decodes the properties in a buffer, behind an index; also returns the index behind them."""


def bound() -> None:
    """Let this process drop every message that is refused, and go on with the next one."""
    registry: Any = kombu.serialization
    registry.register("pinner-refused", None, _refuse, _REFUSED)
    for number, decode in tuple(serialization.PROPERTY_CLASSES.items()):
        serialization.PROPERTY_CLASSES[number] = _bounded(decode)


def _bounded(decode: Decode) -> Decode:
    def decode_bounded(buffer: Any, offset: int) -> tuple[Mapping[str, object], int]:
        refused = {"content_type": _REFUSED}, len(buffer)
        try:
            properties, end = decode(buffer, offset)
        except Exception:  # of whatever kind: the connection must go on
            return refused
        (size,) = _SIZE.unpack_from(buffer, offset - _SIZE.size)
        return (properties, end) if properties.get("content_type") == JSON and size <= MAX_BYTES else refused

    return decode_bounded


def _refuse(_body: bytes) -> NoReturn:
    raise ValueError(_REASON)
