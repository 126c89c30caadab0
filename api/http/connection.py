"""One connection: its two ends, its requests one after the other, its deadlines, its answers."""

import asyncio
import logging
import math
import socket
import ssl
import struct
from collections import deque
from collections.abc import Callable, Mapping
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any, Protocol

from pinner.api.access.peer import Peer, TcpPeer, UnixPeer
from pinner.api.http import messages
from pinner.api.http.messages import Endpoints, HttpRequest, RequestRefused
from pinner.api.http.reader import ClientLimits, RequestReader

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

LOG = logging.getLogger(__name__)
_CREDENTIALS = struct.Struct("3i")
"""The struct ucred of SO_PEERCRED: process, user, group (unix(7))."""


class ConnectionOwner(Protocol):
    limits: ClientLimits
    loop: asyncio.AbstractEventLoop
    ending: bool
    """Whether the server stops: then an answer is the last one of its connection."""

    def admit(self, connection: "Connection") -> bool: ...

    def forget(self, connection: "Connection") -> None: ...

    def submit(self, connection: "Connection", request: HttpRequest) -> None:
        """A worker answers the request with ``send`` and, at its end, ``finish``."""


class Connection(asyncio.Protocol):
    """Reads requests and sends answers, in the event loop; a worker calls it through the loop."""

    def __init__(self, owner: ConnectionOwner, tls: ssl.SSLContext | None) -> None:
        self._owner = owner
        self._tls = tls
        self._reader = RequestReader(owner.limits)
        self._pending: deque[HttpRequest | RequestRefused] = deque()
        self._transport: asyncio.Transport
        self._tcp: asyncio.Transport
        """The transport below TLS; without TLS, the only one."""
        self._handshake: asyncio.Task[None] | None = None
        self._early = bytearray()
        """What the client sent before the event loop reported the end of the handshake."""
        self._drained = asyncio.Event()
        self._drained.set()
        self._first = True
        self._closing = False
        self.ends: Endpoints
        self.lost = False
        self.current: HttpRequest | None = None
        self.since = owner.loop.time()
        self.deadline = self.since + owner.limits.head_seconds

    @property
    def waits(self) -> bool:
        return self.current is None or not self._drained.is_set()

    @property
    def answered(self) -> bool:
        return self.current is None and self._drained.is_set()

    @property
    def held(self) -> int:
        """Bytes."""
        return self._unsent + self._reader.size + self._advance

    @property
    def _unsent(self) -> int:
        encrypted = 0 if self._tcp is self._transport else self._tcp.get_write_buffer_size()
        return self._transport.get_write_buffer_size() + encrypted

    @property
    def _advance(self) -> int:
        return sum(request.size for request in self._pending if isinstance(request, HttpRequest))

    # The event loop calls these (asyncio.Protocol).

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = self._tcp = transport
        if not self._owner.admit(self):
            self.abort()
        elif self._tls is None:
            self._open()
        else:
            transport.pause_reading()  # the first bytes belong to the handshake
            self._handshake = self._owner.loop.create_task(self._shake_hands(self._tls))

    def data_received(self, data: bytes) -> None:
        if self._handshake is not None:
            self._early += data
            return
        if self._closing:
            return
        before = self._reader.phase
        self._pending.extend(self._reader.feed(data))
        if len(self._pending) > self._owner.limits.pipelined:
            self.abort()
            return
        self._set_deadline(before)
        if self._reader.wants_continue and not self._pending and self.current is None:
            self._reader.wants_continue = False
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._next()
        if self._advance > self._owner.limits.head_bytes + self._owner.limits.body_bytes:
            self.abort()

    def eof_received(self) -> bool:
        """The end of the client's sending ends the connection: a waiting request is not carried out, a stream ends."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self.lost = True
        self._pending.clear()
        self._drained.set()
        self._owner.forget(self)

    def pause_writing(self) -> None:
        if self._drained.is_set():
            self._drained.clear()
            self.since = self._owner.loop.time()
            self.deadline = self.since + self._owner.limits.send_seconds

    def resume_writing(self) -> None:
        if self._unsent:
            return
        self._drained.set()
        if self._closing:
            self._end_sending()
            self.deadline = self._owner.loop.time() + self._owner.limits.linger_seconds
        elif self.current is not None:
            self.deadline = math.inf
        else:
            self._wait()
            self._next()

    # The server calls these in the event loop.

    def abort(self) -> None:
        self._closing = True
        if self._handshake is not None:
            self._handshake.cancel()
        self._transport.abort()
        self._owner.forget(self)

    def expire(self) -> None:
        """A client that is in the middle of a request is told why."""
        if self._handshake is not None or self._closing or self._reader.phase == "idle" or not self._drained.is_set():
            self.abort()
            return
        self._refuse(RequestRefused(408, "request_timeout", "the request did not arrive as a whole in time"))

    def end(self) -> None:
        if self.answered:
            self.abort()

    async def send(self, data: bytes) -> None:
        """Returns when the client has read ``data``. Raises ConnectionResetError."""
        if not self.lost:
            self._transport.write(data)
            await self._drained.wait()
        if self.lost:
            raise ConnectionResetError

    def finish(self, data: bytes, *, keep_alive: bool) -> None:
        self.current = None
        if self.lost:
            return
        self._transport.write(data)
        if not keep_alive or self._owner.ending:
            self._close()
        elif self._drained.is_set():
            self._wait()
            self._next()

    # The steps of the connection itself.

    def _open(self) -> None:
        # pause_writing then means: the client has not read everything. With high=0 a TLS transport is always paused.
        self._transport.set_write_buffer_limits(high=1, low=0)
        self.ends = endpoints(self._transport, encrypted=self._tls is not None)

    async def _shake_hands(self, tls: ssl.SSLContext) -> None:
        limits = self._owner.limits
        try:
            transport = await self._owner.loop.start_tls(
                self._transport,
                self,
                tls,
                server_side=True,
                ssl_handshake_timeout=limits.head_seconds,
                ssl_shutdown_timeout=limits.linger_seconds,
            )
        except (OSError, asyncio.CancelledError) as error:
            LOG.info("a TLS handshake failed: %s", error)
            self._transport.abort()
            self._owner.forget(self)
            return
        self._handshake = None
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        encrypting = self._tcp.get_protocol()
        assert isinstance(encrypting, asyncio.BufferedProtocol)
        self._tcp.set_protocol(Observed(encrypting, self.pause_writing, self.resume_writing))
        self._tcp.set_write_buffer_limits(high=1, low=0)
        self._open()
        if self._early and not self.lost:
            self.data_received(bytes(self._early))
            self._early.clear()

    def _set_deadline(self, before: str) -> None:
        """Bytes within a phase do not extend its deadline. That of the first head began with the connection."""
        limits, phase = self._owner.limits, self._reader.phase
        if self.current is not None or phase == before:
            return
        if phase == "body":
            self.deadline = self._owner.loop.time() + limits.body_seconds
        elif phase == "head" and not self._first:
            self.deadline = self._owner.loop.time() + limits.head_seconds

    def _wait(self) -> None:
        limits = self._owner.limits
        seconds = {"idle": limits.idle_seconds, "head": limits.head_seconds, "body": limits.body_seconds}
        self.since = self._owner.loop.time()
        self.deadline = self.since + seconds[self._reader.phase]

    def _next(self) -> None:
        if self.current is not None or not self._pending or not self._drained.is_set():
            return
        if self._closing or self._owner.ending:
            return
        following = self._pending.popleft()
        if isinstance(following, RequestRefused):
            self._refuse(following)
            return
        self.current = following
        self._first = False
        self.deadline = math.inf
        self._owner.submit(self, following)

    def _refuse(self, refused: RequestRefused) -> None:
        self._transport.write(messages.refusal(refused))
        self._close()

    def _close(self) -> None:
        """Close after the client has read the answer, and discard what still arrives."""
        self._closing = True
        self._pending.clear()
        if self._drained.is_set() or self._transport.can_write_eof():
            self._end_sending()
        linger = self._owner.limits.linger_seconds if self._drained.is_set() else self._owner.limits.send_seconds
        self.deadline = self._owner.loop.time() + linger

    def _end_sending(self) -> None:
        """Without TLS asyncio closes the sending side after everything is sent; with TLS it does not wait."""
        try:
            if self._transport.can_write_eof():
                self._transport.write_eof()
            else:
                self._transport.close()
        except OSError:  # the client has reset the connection, and the event loop has not yet reported it
            self.abort()


def endpoints(transport: asyncio.Transport, *, encrypted: bool) -> Endpoints:
    """A Unix socket's server has no address of its own."""
    connection: socket.socket = transport.get_extra_info("socket")
    scheme = "https" if encrypted else "http"
    if connection.family == socket.AF_UNIX:
        return Endpoints(_unix_peer(connection), scheme, "localhost", "")
    address: tuple[str, int, *tuple[int, ...]] = transport.get_extra_info("sockname")
    return Endpoints(_tcp_peer(transport), scheme, address[0], str(address[1]))


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
    certificate: Mapping[str, Any] = tls.getpeercert() or {}
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return names[-1] if names else ""


class Observed(asyncio.BufferedProtocol):
    """Stands between a TCP transport and ``tls``, asyncio's own TLS protocol, which counts bytes given to TCP as sent.
    ``pause`` is called when encrypted bytes begin to wait for the client, ``resume`` when it has received them."""

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
