"""The embedded HTTP server, for one host; a fleet puts a server of its own before create_app."""

import logging
import socket
import threading
from typing import Any

from apiflask import APIFlask
from cheroot import wsgi

from pinner.api.access import is_loopback
from pinner.api.context import Interface
from pinner.api.streams import MAX_STREAMS
from pinner.model.errors import Invalid

LOG = logging.getLogger(__name__)
THREADS = 2 * MAX_STREAMS
"""Calls answered at once. Streams take at most half of them; a sample takes one for as long as it lasts."""


class _Cheroot(wsgi.Server):
    def error_log(self, msg: str = "", level: int = logging.INFO, traceback: bool = False) -> None:
        LOG.log(level, "%s", msg, exc_info=traceback)

    @staticmethod
    def bind_socket(socket_: socket.socket, bind_addr: tuple[str, int]) -> Any:
        # cheroot forgets, open, a socket whose address is taken.
        try:
            return wsgi.Server.bind_socket(socket_, bind_addr)  # type: ignore[no-untyped-call]
        except OSError:
            socket_.close()
            raise


class Server:
    """A server that listens; ``address`` is where."""

    def __init__(self, app: APIFlask, bind: str, port: int) -> None:
        self._interface: Interface = app.extensions["pinner"]
        self._cheroot: Any = _Cheroot((bind, port), app, numthreads=THREADS, max=THREADS, server_name=bind)
        self._thread = threading.Thread(target=self._cheroot.serve, name="api", daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """IP address and port that it listens on."""
        host, port = self._cheroot.bind_addr[:2]
        return host, port

    @property
    def url(self) -> str:
        """The address as a URL."""
        host, port = self.address
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> None:
        """Bind, and answer from now on in threads of its own. Raises Invalid where the address cannot be had."""
        host, port = self._cheroot.bind_addr[:2]
        try:
            self._cheroot.prepare()
        except OSError as error:
            raise Invalid("bind", f"{host}:{port}", f"an address that is free on this machine ({error})") from None
        self._thread.start()

    def stop(self) -> None:
        """Take no more calls, end every stream, and wait for the calls under way (a sample: up to its end)."""
        self._interface.streams.close()
        self._cheroot.stop()
        self._thread.join()


def serve(app: APIFlask, bind: str, port: int) -> Server:
    """Start to serve ``app``; port 0 takes a free one (see Server.address).

    Raises Invalid where an address other than loopback would be served without tokens.
    """
    interface: Interface = app.extensions["pinner"]
    if interface.tokens is None and not is_loopback(bind):
        raise Invalid("bind", bind, "a loopback address such as 127.0.0.1, or any address together with tokens")
    server = Server(app, bind, port)
    server.start()
    return server
