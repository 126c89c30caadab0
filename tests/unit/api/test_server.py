"""The application over real HTTP on a loopback port."""

import json
import socket
import threading
import time

import httpx
import pytest
from support.in_memory_service import InMemoryService

from pinner.api import streams
from pinner.api.app import create_app
from pinner.api.server import THREADS, serve
from pinner.model.errors import Invalid


def running_run(server, pinner):
    """The URL and the id of a run that has not ended."""
    pinner.instant = False
    plan = httpx.post(f"{server.url}/v1/hosts/h1/plans").json()["id"]
    answer = httpx.post(f"{server.url}/v1/plans/{plan}/apply")
    return server.url + answer.headers["Location"], answer.json()["id"]


def test_it_uses_a_free_port_and_closes_it(pinner):
    server = serve(create_app(pinner, tokens=None, max_body_bytes=99), "127.0.0.1", 0)
    host, port = server.address
    assert host == "127.0.0.1"
    assert httpx.get(f"{server.url}/healthcheck").json() == {"status": "ok"}
    server.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, port), timeout=2)


@pytest.mark.parametrize("bind", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_without_tokens_only_loopback_is_served(pinner, bind):
    with pytest.raises(Invalid) as refused:
        serve(create_app(pinner, tokens=None, max_body_bytes=99), bind, 0)
    assert (refused.value.details["field"], refused.value.details["value"]) == ("bind", bind)


def test_with_tokens_any_address_is_served(pinner):
    server = serve(create_app(pinner, tokens={"s3cret": "ann"}, max_body_bytes=99), "0.0.0.0", 0)
    try:
        url = f"http://127.0.0.1:{server.address[1]}/v1/hosts"
        assert httpx.get(url).status_code == 401
        assert httpx.get(url, headers={"Authorization": "Bearer s3cret"}).status_code == 200
    finally:
        server.stop()


def test_a_port_in_use_is_refused(server, pinner):
    with pytest.raises(Invalid) as refused:
        serve(create_app(pinner, tokens=None, max_body_bytes=99), *server.address)
    assert refused.value.details["field"] == "bind"


def test_a_huge_body_is_refused_before_it_is_read(server):
    host, port = server.address
    head = f"POST /v1/hosts/h1/plans HTTP/1.1\r\nHost: {host}\r\nContent-Length: 99999999999\r\n\r\n"
    with socket.create_connection((host, port), timeout=5) as peer:
        peer.sendall(head.encode())
        answer = b"".join(iter(lambda: peer.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b'"too_large"' in answer


def test_a_body_of_unknown_length_is_refused(server, pinner):
    answer = httpx.post(f"{server.url}/v1/hosts/h1/plans", content=iter([b"{}"]))
    assert (answer.status_code, answer.json()["error"]["code"]) == (411, "length_required")
    assert pinner.records == []


def test_a_stream_has_each_change_and_then_the_end(server, pinner):
    url, run = running_run(server, pinner)
    threading.Timer(0.3, pinner.finish, [run]).start()
    with httpx.stream("GET", f"{url}/events") as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        names = [line for line in answer.iter_lines() if line.startswith("event: ")]
    assert names == ["event: change"] * 3 + ["event: end"]


def test_a_silent_stream_sends_comments(server, pinner, monkeypatch):
    monkeypatch.setattr(streams, "KEEP_ALIVE", 0.05)
    url, run = running_run(server, pinner)
    threading.Timer(0.5, pinner.finish, [run]).start()
    assert httpx.get(f"{url}/events").text.startswith(": following\n\n: still running\n\n")


def test_streams_leave_threads_for_requests_and_free_their_slots(server, pinner, monkeypatch):
    monkeypatch.setattr(streams, "KEEP_ALIVE", 0.05)
    url, run = running_run(server, pinner)
    assert streams.MAX_STREAMS < THREADS
    with httpx.Client(limits=httpx.Limits(max_connections=THREADS)) as http:
        opened = [
            http.send(http.build_request("GET", f"{url}/events"), stream=True) for _ in range(streams.MAX_STREAMS)
        ]
        refused = http.get(f"{url}/events")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "too_many_streams")
        assert refused.headers["Retry-After"] == "5"
        assert http.get(f"{server.url}/v1/hosts").status_code == 200
        for answer in opened:
            answer.close()
    pinner.finish(run)
    assert _free_stream(f"{url}/events").text.count("event: ") == 4


def test_an_error_ends_the_stream_with_its_document(server, pinner: InMemoryService, monkeypatch):
    def broken(run):
        yield from ()
        raise Invalid("run", run, "one that can be followed")

    url, run = running_run(server, pinner)
    monkeypatch.setattr(pinner, "follow", broken)
    text = httpx.get(f"{url}/events").text
    assert text.startswith(': following\n\nevent: error\ndata: {"error":{"code":"invalid"')
    pinner.finish(run)


def test_an_unexpected_error_ends_the_stream(server, pinner: InMemoryService, monkeypatch, caplog):
    def broken(_run):
        yield from ()
        raise RuntimeError("password=hunter2")

    url, run = running_run(server, pinner)
    monkeypatch.setattr(pinner, "follow", broken)
    answer = httpx.get(f"{url}/events")
    error = json.loads(answer.text.removeprefix(": following\n\nevent: error\ndata: "))["error"]
    assert (error["code"], error["request_id"]) == ("internal", answer.headers["X-Openstack-Request-Id"])
    assert "hunter2" not in answer.text
    assert "hunter2" in caplog.text
    pinner.finish(run)


def test_the_server_stops_although_a_stream_is_open(pinner):
    server = serve(create_app(pinner, tokens=None, max_body_bytes=99), "127.0.0.1", 0)
    url, run = running_run(server, pinner)
    with httpx.stream("GET", f"{url}/events"):
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 15
    pinner.finish(run)


def _free_stream(url):
    """The first answer that is not 503. The server notices a disconnected client only at the next change of the run."""
    for _ in range(100):
        answer = httpx.get(url)
        if answer.status_code == 200:
            return answer
        time.sleep(0.05)
    raise AssertionError("no slot became free")
