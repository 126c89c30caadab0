"""The application over real HTTP, on a Unix socket and on a loopback port."""

import gc
import json
import os
import pwd
import socket
import threading
import time
from contextlib import suppress

import httpx
import pytest
from support.fakes.in_memory_service import InMemoryService
from support.server.access import InMemoryTokens, bearer, make_control
from support.server.raw_http import many
from support.server.unix_http import http_client, served

from pinner.api import streams
from pinner.api.app import create_app
from pinner.api.server import THREADS, serve
from pinner.model.errors import Invalid
from pinner.server.sockets import listen_tcp, listen_unix


def running_run(server, pinner):
    """The URL and the id of a run that has not ended."""
    pinner.instant = False
    plan = server.http.post("/v1/hosts/h1/plans", json={}).json()["id"]
    answer = server.http.post(f"/v1/plans/{plan}/apply", json={})
    return answer.headers["Location"], answer.json()["id"]


def test_it_serves_tcp_and_a_unix_socket_and_closes_both(pinner, tmp_path):
    unix, tcp = listen_unix(tmp_path / "s", "socket"), listen_tcp("127.0.0.1", 0)
    address = tcp.getsockname()
    server = serve(create_app(pinner, control=make_control(), max_body_bytes=99), [unix, tcp])
    assert server.urls == (f"unix:{tmp_path}/s", f"http://127.0.0.1:{address[1]}")
    for url in server.urls:
        with http_client(url) as http:
            assert http.get("/healthcheck").json() == {"status": "ok"}
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address, timeout=2)
    with socket.socket(socket.AF_UNIX) as peer, pytest.raises(ConnectionRefusedError):
        peer.connect(str(tmp_path / "s"))


@pytest.mark.fault(43)
def test_tcp_needs_a_token_on_loopback_too(pinner):
    tokens = InMemoryTokens()
    server = serve(create_app(pinner, control=make_control(tokens), max_body_bytes=99), [listen_tcp("127.0.0.1", 0)])
    try:
        url = f"{server.url}/v1/hosts"
        assert httpx.get(url).status_code == 401
        assert httpx.get(url, headers={"X-Pinner-Actor": "root"}).status_code == 401
        assert httpx.get(url, headers=bearer("wrong")).status_code == 401
        assert httpx.get(url, headers=bearer(tokens.add("reader"))).status_code == 200
    finally:
        server.stop()


@pytest.mark.fault(43)
def test_the_kernel_names_the_caller_on_the_unix_socket(server, pinner):
    """No token is needed; the file's mode has decided that this user may connect."""
    server.http.post("/v1/hosts/h1/plans", json={})
    record = pinner.records[-1]
    assert (record.actor, record.origin) == (pwd.getpwuid(os.geteuid()).pw_name, f"process {os.getpid()}")


def test_a_huge_body_is_refused_before_it_is_read(server):
    head = "POST /v1/hosts/h1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n"
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(5)
        peer.connect(server.url.removeprefix("unix:"))
        peer.sendall(head.encode())
        answer = b"".join(iter(lambda: peer.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"too_large"' in answer


def test_a_body_of_unknown_length_is_refused(server, pinner):
    answer = server.http.post("/v1/hosts/h1/plans", content=iter([b"{}"]))
    assert (answer.status_code, answer.json()["error"]["code"]) == (411, "length_required")
    assert pinner.records == []


def test_a_stream_has_each_change_and_then_the_end(server, pinner):
    url, run = running_run(server, pinner)
    threading.Timer(0.3, pinner.finish, [run]).start()
    with server.http.stream("GET", f"{url}/events") as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        names = [line for line in answer.iter_lines() if line.startswith("event: ")]
    assert names == ["event: change"] * 3 + ["event: end"]


def test_a_silent_stream_sends_comments(server, pinner, monkeypatch):
    monkeypatch.setattr(streams, "KEEP_ALIVE", 0.05)
    url, run = running_run(server, pinner)
    with server.http.stream("GET", f"{url}/events") as answer:
        lines = answer.iter_lines()
        assert [next(lines) for _ in range(4)] == [": following", "", ": still running", ""]
        pinner.finish(run)
        assert any(line.startswith("event: ") for line in lines)


def test_streams_leave_threads_for_requests_and_free_their_slots(server, pinner, monkeypatch):
    monkeypatch.setattr(streams, "KEEP_ALIVE", 0.05)
    url, run = running_run(server, pinner)
    assert streams.MAX_STREAMS < THREADS
    with http_client(server.url) as http:
        opened = [
            http.send(http.build_request("GET", f"{url}/events"), stream=True) for _ in range(streams.MAX_STREAMS)
        ]
        refused = http.get(f"{url}/events")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "too_many_streams")
        assert refused.headers["Retry-After"] == "5"
        assert http.get("/v1/hosts").status_code == 200
        for answer in opened:
            answer.close()
        pinner.finish(run)
        assert _free_stream(http, f"{url}/events").text.count("event: ") == 4


@pytest.mark.fault(45)
def test_slow_readers_of_an_ended_run_leave_threads_for_requests(server, pinner, monkeypatch):
    """The changes of the run have been read at once; its clients receive none of them."""
    plan = server.http.post("/v1/hosts/h1/plans", json={}).json()["id"]
    run = server.http.post(f"/v1/plans/{plan}/apply", json={}).json()["id"]
    progress = next(iter(pinner.follow(run)))
    monkeypatch.setattr(pinner, "follow", lambda _run: iter([progress] * 2000))
    ask = f"GET /v1/runs/{run}/events HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
    with many(server.url, THREADS, ask):
        time.sleep(2)
        assert server.http.get("/v1/hosts").status_code == 200
        assert server.http.get(f"/v1/runs/{run}/events").status_code == 503


def test_an_error_ends_the_stream_with_its_document(server, pinner: InMemoryService, monkeypatch):
    def broken(run):
        yield from ()
        raise Invalid("run", run, "one that can be followed")

    url, run = running_run(server, pinner)
    monkeypatch.setattr(pinner, "follow", broken)
    text = server.http.get(f"{url}/events").text
    assert text.startswith(': following\n\nevent: error\ndata: {"error":{"code":"invalid"')
    pinner.finish(run)


def test_an_unexpected_error_ends_the_stream(server, pinner: InMemoryService, monkeypatch, caplog):
    def broken(_run):
        yield from ()
        raise RuntimeError("password=hunter2")

    url, run = running_run(server, pinner)
    monkeypatch.setattr(pinner, "follow", broken)
    answer = server.http.get(f"{url}/events")
    error = json.loads(answer.text.removeprefix(": following\n\nevent: error\ndata: "))["error"]
    assert (error["code"], error["request_id"]) == ("internal", answer.headers["X-Openstack-Request-Id"])
    assert "hunter2" not in answer.text
    assert "hunter2" in caplog.text
    pinner.finish(run)


def test_the_server_stops_although_a_stream_is_open(pinner):
    with served(create_app(pinner, control=make_control(), max_body_bytes=99)) as server:
        url, run = running_run(server, pinner)
        with server.http.stream("GET", f"{url}/events"):
            began = time.monotonic()
            server.stop()
            assert time.monotonic() - began < 15
    pinner.finish(run)


def _free_stream(http, url):
    """The first answer that is not 503. The server notices a disconnected client only at the next change of the run."""
    for _ in range(100):
        answer = http.get(url)
        if answer.status_code == 200:
            return answer
        time.sleep(0.05)
    raise AssertionError("no slot became free")


def test_a_client_that_is_accepted_while_the_server_stops_is_disconnected(pinner, tmp_path):
    """The event loop is held, so that the stop and the client are in its next round together."""
    server = serve(create_app(pinner, control=make_control(), max_body_bytes=99), [listen_unix(tmp_path / "s", "sock")])
    held = threading.Event()
    server._loop.call_soon_threadsafe(held.wait, 10)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "s"))
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        wait_until_queued(server._loop)
        held.set()
        stopping.join(60)
        client.settimeout(2)
        with suppress(ConnectionResetError):  # the listening socket was closed before the loop accepted the client
            assert client.recv(1) == b""
    gc.collect()  # a transport that was never closed warns here


def wait_until_queued(loop):
    """The stop waits for the held event loop."""
    deadline = time.monotonic() + 60
    while not loop._ready:
        assert time.monotonic() < deadline
        time.sleep(0.01)
