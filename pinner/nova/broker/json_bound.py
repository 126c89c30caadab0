"""Refuses messages with too many values before they are decoded: 16 MiB of JSON can take thirty times as much memory.

A notification of oslo.messaging is JSON in a text of a JSON object, so its values are counted twice.
"""

from collections.abc import Callable
from typing import Any

import kombu.serialization
import kombu.utils.json

from pinner import codec
from pinner.nova.broker.properties import JSON

MAX_VALUES = 100_000
"""Values in a message. Nova's notifications have some hundreds; one about an aggregate has one more for each host."""
_BEGIN = 4096
"""Bytes of a refused message that are kept."""
_INNER = "oslo.message"
json: Any = kombu.utils.json
"""Its functions have no types."""


def bound(refused: Callable[[object, str], None]) -> None:
    """Let this process refuse such messages; ``refused`` gets the begin of each, and the reason."""

    def loads(body: bytes | memoryview | str) -> Any:
        text = body.encode() if isinstance(body, str) else bytes(body)
        _check(text)
        found = json.loads(text)
        if isinstance(found, dict) and isinstance(inner := found.get(_INNER), str):
            _check(inner.encode(errors="replace"))
        return found

    def _check(text: bytes) -> None:
        if (count := codec.most_values(text)) > MAX_VALUES:
            why = f"a message has about {count} values, more than {MAX_VALUES}"
            refused(text[:_BEGIN].decode(errors="replace"), why)
            raise ValueError(why)

    registry: Any = kombu.serialization
    registry.register("json", json.dumps, loads, JSON, "utf-8")
