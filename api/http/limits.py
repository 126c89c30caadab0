"""The limits of the embedded server."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What one client, and all together, may cost. Sizes are in bytes, deadlines in seconds."""

    body_bytes: int = 256 * 1024
    head_bytes: int = 64 * 1024
    """The request line and all headers of one request."""
    headers: int = 100
    head_seconds: float = 10.0
    """From the connection, or from the first byte of a later request, to the end of the head; includes TLS."""
    body_seconds: float = 30.0
    """From the end of the head to the end of the body."""
    idle_seconds: float = 30.0
    """Between an answer and the next request of the same connection."""
    send_seconds: float = 60.0
    """The client must have read an answer, or one event of a stream, after this time."""
    linger_seconds: float = 2.0
    """After a refusal the server discards what the client still sends: a close at once would reset the connection, and
    the client could lose the answer (RFC 9112, section 9.6)."""
    connections: int = 512
    """Open connections. One more closes the one whose client the server has waited for longest: for its request, or
    until it reads the answer."""
    pipelined: int = 16
    """Requests that one client may send before it reads the first answer. Together they may be as large as one."""
    held_bytes: int = 64 * 1024 * 1024
    """Answers that clients have not read, and requests that no worker answers yet, over all connections. Above it the
    connection with the most is dropped."""
