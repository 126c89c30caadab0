"""The transport of a connection: who is at its two ends, and the encrypted bytes that wait for a client of TLS."""

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any

from pinner.api.access.peer import Peer, TcpPeer, UnixPeer
from pinner.api.http.request import Endpoints

_CREDENTIALS = struct.Struct("3i")
"""struct ucred: process, user, group (unix(7), SO_PEERCRED)."""


def endpoints(transport: asyncio.Transport, *, encrypted: bool) -> Endpoints:
    """The ends of an open connection. A Unix socket's server has no address of its own."""
    connection: socket.socket = transport.get_extra_info("socket")
    scheme = "https" if encrypted else "http"
    if connection.family == socket.AF_UNIX:
        return Endpoints(_unix_peer(connection), scheme, "localhost", "")
    own: tuple[str, int, *tuple[int, ...]] = transport.get_extra_info("sockname")
    return Endpoints(_tcp_peer(transport), scheme, own[0], str(own[1]))


def _unix_peer(connection: socket.socket) -> Peer:
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _gid = _CREDENTIALS.unpack(raw)
    return UnixPeer(uid, pid)


def _tcp_peer(transport: asyncio.Transport) -> Peer:
    peer: tuple[str, int, *tuple[int, ...]] = transport.get_extra_info("peername")
    address = ip_address(peer[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped  # an IPv4 client of a socket that serves both families
    tls: ssl.SSLObject | None = transport.get_extra_info("ssl_object")
    return TcpPeer(str(address), _common_name(tls) if tls else "")


def _common_name(tls: ssl.SSLObject) -> str:
    """The common name of the client's verified certificate; empty without one."""
    certificate: Mapping[str, Any] = tls.getpeercert() or {}
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return names[-1] if names else ""


if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class Observed(asyncio.BufferedProtocol):
    """Stands between a TCP transport and ``tls``, asyncio's own TLS protocol.

    asyncio's TLS transport passes on to TCP all that is written, and then counts it as sent. ``pause`` is called when
    encrypted bytes begin to wait for the client, ``resume`` when it has received them.
    """

    def __init__(self, tls: asyncio.BufferedProtocol, pause: Callable[[], None], resume: Callable[[], None]) -> None:
        self._tls = tls
        self._pause = pause
        self._resume = resume

    def get_buffer(self, sizehint: int) -> "ReadableBuffer":
        return self._tls.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._tls.buffer_updated(nbytes)

    def eof_received(self) -> bool | None:
        return self._tls.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._tls.connection_lost(exc)

    def pause_writing(self) -> None:
        self._tls.pause_writing()
        self._pause()

    def resume_writing(self) -> None:
        """TLS may write more at once, and so wait again."""
        self._tls.resume_writing()
        self._resume()
