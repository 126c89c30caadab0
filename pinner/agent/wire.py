"""The agent's wire on one machine: JSON messages over a Unix socket, one call a connection.

    -> {"call": NAME, ...arguments}
    <- {"progress": Entry, "total": N}     any number of times
    <- {"result": VALUE} or {"error": {"code", "message", "details"}}

Messages are JSON text inside multiprocessing.connection's length-framed bytes; nothing is ever unpickled, for the
agent is root and its caller is not.
"""

import json
from multiprocessing.connection import Connection
from typing import Any

from pinner import codec

MAX_MESSAGE = 256 * 1024 * 1024
"""Bytes; the snapshot of a host with 10,000 threads takes about 3 MiB."""


def send(peer: Connection, **parts: object) -> None:
    """Send one message; values are written by the codec."""
    body = b",".join(json.dumps(name).encode() + b":" + codec.dump(value) for name, value in parts.items())
    peer.send_bytes(b"{" + body + b"}")


def receive(peer: Connection) -> dict[str, Any]:
    """The next message. Raises EOFError when the peer has gone."""
    message: dict[str, Any] = json.loads(peer.recv_bytes(MAX_MESSAGE))
    return message
