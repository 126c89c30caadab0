"""HTTP over a Unix socket: a server for an application, and clients."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from apiflask import APIFlask
from flask.testing import FlaskClient

from pinner.api.access.peer import ENVIRON, UnixPeer
from pinner.api.server import Server, serve
from pinner.server.sockets import listen_unix

UNIX = "unix:"
NOBODY = UnixPeer(uid=65534, pid=1)


def http_client(url: str, *, path: str = "", timeout: float = 60.0) -> httpx.Client:
    """A client of the server at ``url``: unix:/path or http://address:port. Requests begin with ``path``.

    It keeps no connection open between requests, so it need not be closed.
    """
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    if not url.startswith(UNIX):
        return httpx.Client(base_url=f"{url}{path}", timeout=timeout, limits=limits)
    transport = httpx.HTTPTransport(uds=url.removeprefix(UNIX), limits=limits)
    return httpx.Client(transport=transport, base_url=f"http://localhost{path}", timeout=timeout)


def on_unix_socket(client: FlaskClient, peer: UnixPeer = NOBODY) -> FlaskClient:
    """The client, whose requests come from ``peer`` as if the server had named it."""
    client.environ_base[ENVIRON] = peer
    return client


class Served:
    """A running server of a Unix socket, and a client of it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.url = server.url
        self.http = http_client(server.url)

    def stop(self) -> None:
        """Stop the server."""
        self._server.stop()


@contextmanager
def served(app: APIFlask) -> Iterator[Served]:
    """The application, served at a Unix socket of this user."""
    with tempfile.TemporaryDirectory(prefix="pinner-test-") as folder:
        running = Served(serve(app, [listen_unix(Path(folder) / "api.sock", "socket")]))
        try:
            with running.http:
                yield running
        finally:
            running.stop()
