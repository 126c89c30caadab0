"""The embedded HTTP server, for one host. An installation for many hosts can run create_app in its own WSGI server."""

import logging
import socket
import threading
from collections.abc import Sequence
from typing import Any

from apiflask import APIFlask
from cheroot import wsgi

from pinner.api.access import is_loopback
from pinner.api.context import AppState
from pinner.api.streams import MAX_STREAMS
from pinner.model.errors import Invalid

LOG = logging.getLogger(__name__)
THREADS = 2 * MAX_STREAMS
"""Requests that are answered at the same time. Streams use at most half of the threads. A request that measures CPU
use occupies one thread during the sample."""


class _Cheroot(wsgi.Server):
    def error_log(self, msg: str = "", level: int = logging.INFO, traceback: bool = False) -> None:
        LOG.log(level, "%s", msg, exc_info=traceback)

    @staticmethod
    def bind_socket(socket_: socket.socket, bind_addr: tuple[str, int]) -> Any:
        # cheroot leaves the socket open where its address is in use.
        try:
            return wsgi.Server.bind_socket(socket_, bind_addr)  # type: ignore[no-untyped-call]
        except OSError:
            socket_.close()
            raise


class _Inherited(_Cheroot):
    """A server on a Unix socket that another process has made."""

    def __init__(self, given: socket.socket, app: APIFlask) -> None:
        super().__init__(given.getsockname(), app, numthreads=THREADS, max=THREADS, server_name="localhost")
        self._given = given

    def bind_unix_socket(self, _address: str) -> None:
        self.socket = self._given


class Server:
    """An HTTP server on one TCP address, or on inherited Unix sockets."""

    def __init__(self, app: APIFlask, bind: str, port: int, inherited: Sequence[socket.socket] = ()) -> None:
        self._state: AppState = app.extensions["pinner"]
        self._servers: list[Any] = [_Inherited(given, app) for given in inherited] or [
            _Cheroot((bind, port), app, numthreads=THREADS, max=THREADS, server_name=bind)
        ]
        self._cheroot = self._servers[0]
        self._threads = [threading.Thread(target=each.serve, name="api", daemon=True) for each in self._servers]

    @property
    def address(self) -> tuple[str, int]:
        """The IP address and port on which the server listens."""
        host, port = self._cheroot.bind_addr[:2]
        return host, port

    @property
    def url(self) -> str:
        """The address as a URL."""
        if isinstance(self._cheroot, _Inherited):
            return f"unix:{self._cheroot.bind_addr}"
        host, port = self.address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> None:
        """Bind, and answer requests in threads of the server. Raises Invalid where the address cannot be bound."""
        for server, thread in zip(self._servers, self._threads, strict=True):
            try:
                server.prepare()
            except OSError as error:
                host, port = server.bind_addr[:2]
                raise Invalid("bind", f"{host}:{port}", f"a free address of this machine ({error})") from None
            thread.start()

    def stop(self) -> None:
        """Accept no more requests, end every stream, and wait for the requests in progress, even for a whole sample."""
        self._state.streams.close()
        for server, thread in zip(self._servers, self._threads, strict=True):
            server.stop()
            thread.join()


def serve(app: APIFlask, bind: str, port: int, inherited: Sequence[socket.socket] = ()) -> Server:
    """Start a server for ``app``. Port 0 selects a free port (see Server.address).

    Raises Invalid for an address that is not loopback when ``app`` has no tokens.
    """
    state: AppState = app.extensions["pinner"]
    if state.tokens is None and not is_loopback(bind):
        raise Invalid("bind", bind, "a loopback address such as 127.0.0.1; any other address needs tokens")
    server = Server(app, bind, port, inherited)
    server.start()
    return server
