"""The peer of a connection, as the kernel or the TLS handshake names it; the request itself can lie."""

from dataclasses import dataclass

ENVIRON = "pinner.peer"
"""The key of the peer in the WSGI environment. The embedded server sets it for every request."""


@dataclass(frozen=True, slots=True)
class UnixPeer:
    """The process at the other end of a Unix socket (SO_PEERCRED, unix(7))."""

    uid: int
    pid: int


@dataclass(frozen=True, slots=True)
class TcpPeer:
    """The other end of a TCP connection."""

    address: str
    """The IP address."""
    certificate: str = ""
    """The common name of the client's certificate that the server has verified; empty without one."""


Peer = UnixPeer | TcpPeer
