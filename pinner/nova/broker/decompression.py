"""Bounds the size of compressed messages: two megabytes of a message can decompress to gigabytes.

kombu decompresses each message whose header names a compression. Nova's option kombu_compression uses it.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import Any, NoReturn

import kombu.compression

compression: Any = kombu.compression
"""Its functions have no types."""
MAX_BYTES = 16 << 20
"""The most bytes of a decompressed message. RabbitMQ 4 accepts no larger message by default."""
_KINDS: dict[str, Callable[[], Any]] = {
    "application/x-gzip": zlib.decompressobj,
    "application/x-bz2": bz2.BZ2Decompressor,
    "application/x-lzma": lzma.LZMADecompressor,
}
"""kombu's name of each compression, and a decompressor that can stop."""


def bound() -> None:
    """Replace kombu's decompression functions in this process; those without a bound are refused."""
    for name in compression.encoders():
        encoder, _ = compression.get_encoder(name)
        compression.register(encoder, _bounded(_KINDS[name]) if name in _KINDS else _refuse, name)


def _bounded(make: Callable[[], Any]) -> Callable[[bytes], bytes]:
    def decompress(body: bytes) -> bytes:
        decompressor = make()
        found: bytes = decompressor.decompress(body, MAX_BYTES + 1)
        if len(found) > MAX_BYTES or not decompressor.eof:
            raise ValueError(f"a compressed message has more than {MAX_BYTES} bytes, or is not complete")
        return found

    return decompress


def _refuse(_body: bytes) -> NoReturn:
    raise ValueError("pinner does not accept this compression of messages")
