"""The messages between an agent and its callers: JSON over a Unix socket, one call in each connection.

    -> {"call": NAME, ...arguments}
    <- {"progress": Entry, "total": N}     any number of times
    <- {"result": VALUE} or {"error": {"code", "message", "details"}}

Messages are JSON text in the length-framed bytes of multiprocessing.connection. Nothing is ever unpickled, because the
agent runs as root and its caller does not.
"""

import json
from multiprocessing.connection import Connection
from typing import Any

from pinner import codec

MAX_MESSAGE = 256 * 1024 * 1024
"""Bytes. The snapshot of a host with 10,000 threads takes about 3 MiB."""


def send(peer: Connection, **parts: object) -> None:
    """Send one message. The codec writes the values."""
    body = b",".join(json.dumps(name).encode() + b":" + codec.dump(value) for name, value in parts.items())
    peer.send_bytes(b"{" + body + b"}")


def receive(peer: Connection) -> dict[str, Any]:
    """The next message. Raises EOFError if the peer has disconnected."""
    message: dict[str, Any] = json.loads(peer.recv_bytes(MAX_MESSAGE))
    return message
