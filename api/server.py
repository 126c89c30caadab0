"""The embedded HTTP server. Another WSGI server can run create_app in its place."""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from dataclasses import replace

from apiflask import APIFlask

from pinner.api.access.context import AppState
from pinner.api.http.reader import ClientLimits
from pinner.api.http.serving import Serving
from pinner.api.streams import MAX_STREAMS
from pinner.model.health import Queue
from pinner.service.hosts.hosts import OBSERVING_CALLERS
from pinner.worker import BeatingThread

THREADS = MAX_STREAMS + OBSERVING_CALLERS + 4
"""Requests that are answered at the same time: streams and callers that wait for a host leave four threads."""

HANGS_SECONDS = 60.0
"""The event loop beats four times in a second."""


class Server:
    """Serves in threads of its own, and handles no signals."""

    def __init__(
        self, app: APIFlask, sockets: Sequence[socket.socket], tls: ssl.SSLContext | None, limits: ClientLimits
    ) -> None:
        self._state: AppState = app.extensions["pinner"]
        self._loop = asyncio.new_event_loop()
        self._serving = Serving(app, limits, THREADS, self._loop)
        self._thread = BeatingThread(self._loop.run_forever, "api", HANGS_SECONDS)
        self.heartbeat = self._thread.heartbeat
        """The event loop's, which nothing may block."""
        self._serving.on_tick(self.heartbeat.beat)
        self._thread.start()
        self.urls = tuple(_url(bound, tls) for bound in sockets)
        """http://…, https://… or unix:/… for each socket."""
        asyncio.run_coroutine_threadsafe(self._serving.listen(sockets, tls), self._loop).result()

    def queue(self) -> Queue:
        return self._serving.queue()

    @property
    def url(self) -> str:
        return self.urls[0]

    def stop(self) -> None:
        """Accept no more requests, end each stream, and wait for requests in progress, even a sample. Repeatable."""
        if self._loop.is_closed():
            return
        self.heartbeat.end()
        self._state.streams.close()
        asyncio.run_coroutine_threadsafe(self._serving.accept_no_more(), self._loop).result()
        self._serving.close()
        asyncio.run_coroutine_threadsafe(self._serving.end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def serve(
    app: APIFlask,
    sockets: Sequence[socket.socket],
    tls: ssl.SSLContext | None = None,
    limits: ClientLimits | None = None,
) -> Server:
    """The bound ``sockets`` (AF_UNIX, AF_INET, AF_INET6) are closed at the end. With ``tls``, TCP speaks TLS only."""
    return Server(app, sockets, tls, replace(limits or ClientLimits(), body_bytes=app.config["MAX_CONTENT_LENGTH"]))


def _url(bound: socket.socket, tls: ssl.SSLContext | None) -> str:
    if bound.family == socket.AF_UNIX:
        return f"unix:{bound.getsockname()}"
    host, port = bound.getsockname()[:2]
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
