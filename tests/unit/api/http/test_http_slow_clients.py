"""Clients that do not read, send too far ahead, or end their connection in an unlucky moment, cost others nothing."""

import asyncio
import socket
import ssl
import threading
import time
from contextlib import ExitStack, suppress

import httpx
import pytest
from support.server.access import make_control
from support.server.certificates import Authority
from support.server.raw_http import HEALTH, connect, exchange, many, read_all

from pinner.api.access import access
from pinner.api.access.tls import TlsFiles, server_context
from pinner.api.app import create_app
from pinner.api.http.connection import Connection
from pinner.api.http.reader import ClientLimits
from pinner.api.http.serving import Serving
from pinner.api.server import serve
from pinner.server.sockets import listen_tcp

pytestmark = pytest.mark.fault(45)

HEAD = b"POST /v1/hosts/h1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SHORT = ClientLimits(head_seconds=1.0, connections=40)


@pytest.fixture
def short(pinner):
    """A server with few connections."""
    running = serve(
        create_app(pinner, control=make_control(), max_body_bytes=4096), [listen_tcp("127.0.0.1", 0)], None, SHORT
    )
    yield running
    running.stop()


class Watched(Serving):
    """Serves in the test's own event loop, so that the test decides what happens between two of its rounds."""

    newest: Connection

    def admit(self, connection: Connection) -> bool:
        """Remember the connection."""
        self.newest = connection
        return super().admit(connection)


def in_one_loop(scenario, app=None, tls=None, limits=ClientLimits()):  # noqa: B008 - a frozen value
    """Run ``scenario(serving, address)``; returns the errors that the event loop reports."""
    errors = []

    async def run():
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: errors.append(context))
        serving = Watched(app, limits, 1, loop)
        listener = listen_tcp("127.0.0.1", 0)
        address = listener.getsockname()
        await serving.listen([listener], tls)
        await scenario(serving, address)
        await serving.accept_no_more()
        await asyncio.to_thread(serving.close)
        await serving.end()

    asyncio.run(run())
    return errors


def test_a_client_that_closes_as_its_time_ends_does_not_end_the_deadlines_of_others():
    """The kernel answers the refusal with a reset before the event loop has seen that the client closed."""

    async def scenario(serving, address):
        with socket.create_connection(address) as peer:
            peer.sendall(b"GET / HT")
            await asyncio.sleep(0.1)
        serving.newest.expire()
        await asyncio.sleep(0.1)
        assert serving.newest.lost

    assert in_one_loop(scenario) == []


def test_a_connection_that_cannot_be_ended_does_not_end_the_deadlines(monkeypatch):
    async def scenario(serving, address):
        with socket.create_connection(address) as broken:
            broken.sendall(b"GET / HT")
            await asyncio.sleep(0.1)
            monkeypatch.setattr(serving.newest, "_refuse", None)
            serving.newest.deadline = 0
            await asyncio.sleep(0.5)
        with socket.create_connection(address) as peer:
            peer.sendall(b"GET / HT")
            await asyncio.sleep(0.1)
            serving.newest.deadline = 0
            await asyncio.sleep(0.5)
            assert peer.recv(20).startswith(b"HTTP/1.1 408 ")

    assert in_one_loop(scenario) == []


def test_clients_that_read_no_answer_lock_nobody_out(short):
    """Each has a part of an answer in the server. They are as many as the server has connections."""
    with ExitStack() as stack:
        for _ in range(SHORT.connections):
            peer = stack.enter_context(slow_reader(short.url))
            peer.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answers_within(20, short.url)


def answers_within(seconds: float, url: str) -> bool:
    """Whether a new connection is served, after the requests that came before it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(httpx.TransportError):
            return httpx.get(f"{url}/healthcheck", timeout=60).status_code == 200
        time.sleep(0.2)
    return False


def slow_reader(url: str) -> socket.socket:
    """A connection whose client has room for few bytes."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    parts = httpx.URL(url)
    peer.connect((parts.host, parts.port))
    return peer


def test_requests_in_advance_are_limited_by_their_size(server, pinner, monkeypatch):
    """A worker answers the first request; the others wait in memory."""
    go_on = threading.Event()
    monkeypatch.setattr(pinner, "hosts", lambda: go_on.wait(60) and ())
    head = b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 60_000 + b"\r\n\r\n"
    with connect(server.url) as peer:
        peer.sendall(b"GET /v1/hosts HTTP/1.1\r\nHost: localhost\r\n\r\n")
        with suppress(OSError):
            peer.sendall(head * 15)
        assert read_all(peer) == b""
    go_on.set()


def test_what_waits_for_all_clients_is_limited(pinner, monkeypatch):
    """Answers that are not read, and requests that are not complete or not answered yet."""
    limits = ClientLimits(held_bytes=300_000)
    app = create_app(pinner, control=make_control(), max_body_bytes=200_000)
    server = serve(app, [listen_tcp("127.0.0.1", 0)], None, limits)
    part = HEAD + b"Content-Length: 150000\r\n\r\n" + b" " * 140_000
    with many(server.url, 4, part) as peers:
        time.sleep(1)
        ended = 0
        for peer in peers:
            peer.settimeout(0.2)
            with suppress(TimeoutError):
                ended += read_all(peer) == b""
    assert ended == 2
    server.stop()


def test_other_methods_of_healthcheck_do_not_delay_it(server, monkeypatch):
    """Their refusal is a record of the audit trail, for which the database may need seconds."""
    go_on = threading.Event()
    monkeypatch.setattr(access, "_audit_refusal", lambda _response: go_on.wait(60))
    # 403: a proxy must not use the Unix socket.
    ask = b"POST /healthcheck HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 1\r\n\r\n"
    with many(server.url, 3, ask):
        time.sleep(0.2)
        assert exchange(server.url, HEALTH).statuses == [200]
        assert not go_on.is_set()
        go_on.set()


SIZE = 8_000_000
"""More than the kernel keeps for a client that does not read."""


def long_answer(_environ, start_response):
    """A WSGI application."""
    start_response("200 OK", [("Content-Length", str(SIZE))])
    return [b"x" * SIZE]


def test_a_slow_reader_of_tls_gets_the_whole_answer(tmp_path):
    """asyncio counts bytes as sent that TLS has encrypted. The end of the connection must wait for the client."""
    certificate, key = Authority.create(tmp_path, "ca").issue("localhost")
    tls = server_context(TlsFiles(str(certificate), str(key)))
    trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))

    def ask(address):
        with socket.socket() as plain:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            plain.settimeout(20)
            plain.connect(address)
            with trusting.wrap_socket(plain, server_hostname="localhost") as peer:
                peer.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                time.sleep(3)
                return read_all(peer)

    async def scenario(serving, address):
        answer = asyncio.get_running_loop().run_in_executor(None, ask, address)
        await asyncio.sleep(2)
        assert serving.newest.held > 0
        assert len((await answer).partition(b"\r\n\r\n")[2]) == SIZE

    assert in_one_loop(scenario, long_answer, tls, ClientLimits(linger_seconds=0.5)) == []
