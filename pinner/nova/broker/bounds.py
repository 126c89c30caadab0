"""Refuses messages of the broker before they cost memory: by their compression, their properties, their values.

kombu decompresses each message whose header names a compression: two megabytes can become gigabytes. 16 MiB of JSON can
take thirty times as much memory.

amqp decodes the properties while it reads the connection: after an error there, the broker sends the message again on
the next connection, without end. kombu decodes a body by the type and the encoding that the properties name; some of
Python's encodings decompress."""

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import kombu.compression
import kombu.serialization
import kombu.utils.json
from amqp import serialization  # type: ignore[import-untyped]

from pinner import codec

compression: Any = kombu.compression
MAX_BYTES = 16 << 20
"""Bytes of a decompressed message. RabbitMQ 4 accepts no larger message by default."""
_KINDS: dict[str, Callable[[], Any]] = {
    "application/x-gzip": zlib.decompressobj,
    "application/x-bz2": bz2.BZ2Decompressor,
    "application/x-lzma": lzma.LZMADecompressor,
}


def bound_compression() -> None:
    """Replace kombu's decompressors in this process; those without a bound are refused."""
    for name in compression.encoders():
        encoder, _ = compression.get_encoder(name)
        compression.register(
            encoder, _bounded_decompressor(_KINDS[name]) if name in _KINDS else _refuse_compression, name
        )


def _bounded_decompressor(make: Callable[[], Any]) -> Callable[[bytes], bytes]:
    def decompress(body: bytes) -> bytes:
        decompressor = make()
        unpacked: bytes = decompressor.decompress(body, MAX_BYTES + 1)
        if len(unpacked) > MAX_BYTES or not decompressor.eof:
            raise ValueError(f"a compressed message has more than {MAX_BYTES} bytes, or is not complete")
        return unpacked

    return decompress


def _refuse_compression(_body: bytes) -> NoReturn:
    raise ValueError("pinner does not accept this compression of messages")


JSON = "application/json"
"""The type of every notification of oslo.messaging."""
_REFUSED = "application/x-pinner-refused"
_REASON = f"its type is not {JSON}, it has more than {MAX_BYTES} bytes, or its properties are not those of AMQP"
_SIZE = struct.Struct(">Q")

Decode = Callable[[Any, int], tuple[Mapping[str, object], int]]
"""Decodes the properties in a buffer behind an index; also returns the index behind them."""


def bound_properties() -> None:
    """Drop every refused message, and go on with the next one."""
    registry: Any = kombu.serialization
    registry.register("pinner-refused", None, _refuse_message, _REFUSED)
    for number, decode in tuple(serialization.PROPERTY_CLASSES.items()):
        serialization.PROPERTY_CLASSES[number] = _bounded_decode(decode)


def _bounded_decode(decode: Decode) -> Decode:
    def decode_bounded(buffer: Any, offset: int) -> tuple[Mapping[str, object], int]:
        refused = {"content_type": _REFUSED}, len(buffer)
        try:
            properties, end = decode(buffer, offset)
        except Exception:  # of whatever kind: the connection must go on
            return refused
        (size,) = _SIZE.unpack_from(buffer, offset - _SIZE.size)
        return (properties, end) if properties.get("content_type") == JSON and size <= MAX_BYTES else refused

    return decode_bounded


def _refuse_message(_body: bytes) -> NoReturn:
    raise ValueError(_REASON)


MAX_VALUES = 100_000
"""Values in a message, counted twice: a notification is JSON in a text of a JSON object. Nova's have some hundreds, or
one for each host of an aggregate."""
_BEGIN = 4096
"""Bytes of a refused message that are kept."""
_INNER = "oslo.message"
json: Any = kombu.utils.json


def bound_values(refused: Callable[[object, str], None]) -> None:
    """Refuse messages with too many values; ``refused`` gets the begin of each, and the reason."""

    def loads(body: bytes | memoryview | str) -> Any:
        text = body.encode() if isinstance(body, str) else bytes(body)
        _check(text)
        value = json.loads(text)
        if isinstance(value, dict) and isinstance(inner := value.get(_INNER), str):
            _check(inner.encode(errors="replace"))
        return value

    def _check(text: bytes) -> None:
        if (count := codec.most_values(text)) > MAX_VALUES:
            why = f"a message has about {count} values, more than {MAX_VALUES}"
            refused(text[:_BEGIN].decode(errors="replace"), why)
            raise ValueError(why)

    registry: Any = kombu.serialization
    registry.register("json", json.dumps, loads, JSON, "utf-8")
