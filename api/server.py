"""The embedded HTTP server, for one host. An installation for many hosts can run create_app in its own WSGI server."""

import logging
import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any

from apiflask import APIFlask
from cheroot import wsgi

from pinner.api.context import AppState
from pinner.api.peer import ENVIRON, Peer, TcpPeer, UnixPeer
from pinner.api.streams import MAX_STREAMS

LOG = logging.getLogger(__name__)
THREADS = 2 * MAX_STREAMS
"""Requests that are answered at the same time. Streams use at most half of the threads. A request that measures CPU
use occupies one thread during the sample."""
_CREDENTIALS = struct.Struct("3i")


class _Gateway(wsgi.Gateway_10):
    """Adds the peer of the connection to the environment of each request."""

    def get_environ(self) -> dict[str, Any]:  # type: ignore[override] # cheroot's stub is wrong
        return {**super().get_environ(), ENVIRON: _peer(self.req.conn)}  # type: ignore[no-untyped-call]


class _Cheroot(wsgi.Server):
    """A server on one socket, which is bound already."""

    def __init__(self, app: APIFlask, listener: socket.socket) -> None:
        unix = listener.family == socket.AF_UNIX
        address = listener.getsockname() if unix else listener.getsockname()[:2]
        super().__init__(address, app, numthreads=THREADS, max=THREADS, server_name="localhost" if unix else address[0])
        self.gateway = _Gateway
        self._listener = listener

    def bind(self, *_: object) -> None:
        self.socket = self._listener

    bind_unix_socket = bind

    def error_log(self, msg: str = "", level: int = logging.INFO, traceback: bool = False) -> None:
        LOG.log(level, "%s", msg, exc_info=traceback)


class Server:
    """An HTTP server on listening sockets."""

    def __init__(self, app: APIFlask, listeners: Sequence[socket.socket]) -> None:
        self._state: AppState = app.extensions["pinner"]
        self.urls = tuple(map(_url, listeners))
        """Where the server listens, in the order of the sockets: unix:/… or http://…"""
        self._servers: list[Any] = [_Cheroot(app, listener) for listener in listeners]
        self._threads = [threading.Thread(target=each.serve, name="api", daemon=True) for each in self._servers]

    @property
    def url(self) -> str:
        """The first of ``urls``."""
        return self.urls[0]

    def start(self) -> None:
        """Answer requests in threads of the server."""
        for server, thread in zip(self._servers, self._threads, strict=True):
            server.prepare()
            thread.start()

    def stop(self) -> None:
        """Accept no more requests, end every stream, and wait for the requests in progress, even for a whole sample.

        The listening sockets are closed.
        """
        self._state.streams.close()
        for server, thread in zip(self._servers, self._threads, strict=True):
            server.stop()
            thread.join()


def serve(app: APIFlask, listeners: Sequence[socket.socket]) -> Server:
    """Start a server for ``app`` on sockets (AF_UNIX, AF_INET, AF_INET6) that listen already."""
    server = Server(app, listeners)
    server.start()
    return server


def _url(listener: socket.socket) -> str:
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _peer(connection: Any) -> Peer:
    if connection.socket.family == socket.AF_UNIX:
        found = connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _ = _CREDENTIALS.unpack(found)
        return UnixPeer(uid, pid)
    return TcpPeer(connection.remote_addr or "")
