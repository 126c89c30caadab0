"""Answers that come slowly, or are large: each request of RemoteService ends in time, and takes a bounded memory."""

import gzip
import socket
import ssl
import subprocess
import time
from contextlib import closing

import pytest
from support.server.slow_server import HEAD, LONGEST, serving
from support.values import NOON

from pinner.model.errors import HostUnreachable
from pinner.model.event import GuestEvent
from pinner.model.run.audit import Caller
from pinner.service.remote.remote import RemoteService

LENGTH = b"Content-Length: 100000\r\n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
PATIENCE = 0.6


def topology(remote):
    remote.topology("h1")


def event(remote):
    remote.guest_event("h1", GuestEvent("started", "g" * 36, "start", "nova", NOON), Caller("", "", ""))


def follow(remote):
    list(remote.follow("run-1"))


def export(remote):
    list(remote.export_audit())


DRIPS = {
    "status": ((), b"H"),
    "header": ((HEAD, b"X: "), b"x"),
    "headers": ((HEAD,), b"X: y\r\n"),
    "continue": ((), b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": ((HEAD, LENGTH), b" "),
    "chunks": ((HEAD, CHUNKED), b"1\r\n \r\n"),
    "trailers": ((HEAD, CHUNKED, b"1\r\n1\r\n0\r\n"), b"X: y\r\n"),
    "gzip": ((HEAD, b"Content-Encoding: gzip\r\n", LENGTH, gzip.compress(b"1")), b" "),
    "until the end": ((HEAD, b"\r\n"), b" "),
}


@pytest.mark.parametrize("drip", DRIPS)
@pytest.mark.parametrize("ask", [topology, event])
def test_an_answer_that_drips_ends_in_time(drip, ask):
    parts, rest = DRIPS[drip]
    with serving(*parts, drip=rest) as url, closing(RemoteService(url, None, PATIENCE)) as remote:
        began = time.monotonic()
        with pytest.raises(HostUnreachable, match=rf"within {PATIENCE:g} s") as late:
            ask(remote)
        assert time.monotonic() - began < LONGEST
        assert late.value.details["host"] == url


def test_a_unix_socket_that_drips(tmp_path):
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "api.sock"))
    listening.listen()
    with (
        serving(HEAD, drip=b"X: y\r\n", listening=listening) as url,
        closing(RemoteService(url, None, PATIENCE)) as remote,
        pytest.raises(HostUnreachable, match=rf"within {PATIENCE:g} s"),
    ):
        topology(remote)


def test_an_answer_over_tls_that_drips(tmp_path, monkeypatch):
    key, certificate = tmp_path / "key", tmp_path / "certificate"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate]
    subprocess.run([*make, *names], check=True, capture_output=True)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with (
        serving(HEAD, LENGTH, drip=b" ", tls=tls) as url,
        closing(RemoteService(url, None, PATIENCE)) as remote,
        pytest.raises(HostUnreachable, match=rf"within {PATIENCE:g} s"),
    ):
        topology(remote)


@pytest.mark.parametrize("ask", [follow, export])
@pytest.mark.parametrize("head", [HEAD, b"HTTP/1.1 404 Not Found\r\n" + LENGTH])
def test_the_begin_and_the_error_of_a_stream_come_in_time(ask, head):
    drip = b" " if LENGTH in head else b"X: y\r\n"
    with serving(head, drip=drip) as url, closing(RemoteService(url, None, PATIENCE)) as remote:
        began = time.monotonic()
        with pytest.raises(HostUnreachable):
            ask(remote)
        # A run whose stream breaks is read again without a stream, once.
        assert time.monotonic() - began < LONGEST


def test_a_stream_may_last_longer_than_an_answer():
    with serving(HEAD, b"\r\n", drip=b"line\n") as url, closing(RemoteService(url, None, PATIENCE)) as remote:
        began, lines = time.monotonic(), remote.export_audit()
        while time.monotonic() < began + 2 * PATIENCE:
            assert next(lines) == "line\n"
        lines.close()


def test_an_exchange_leaves_no_deadline_for_the_next():
    body = b"Content-Length: 23\r\n\r\n" + b'{"items":[],"next": ""}'
    with serving(HEAD + body) as url, closing(RemoteService(url, None, PATIENCE)) as remote:
        for _ in range(3):
            assert remote.hosts() == ()
            time.sleep(PATIENCE / 2)


@pytest.mark.parametrize(
    "parts",
    [
        (HEAD, b"\r\n", *[b" " * 65536] * 64),
        (HEAD, b"Content-Length: 1000000000000\r\n\r\n", *[b" " * 65536] * 64),
        (HEAD, b"Content-Encoding: gzip\r\n\r\n", gzip.compress(b" " * 10_000_000)),
        (b"HTTP/1.1 500 Wrong\r\n", b"\r\n", *[b" " * 65536] * 64),
    ],
    ids=["endless", "long", "gzip", "error"],
)
def test_a_large_answer_is_refused(parts):
    with serving(*parts) as url, closing(RemoteService(url, limit=1_000_000)) as remote:
        with pytest.raises(HostUnreachable, match="more than 1000000 bytes") as large:
            topology(remote)
        assert (large.value.details["host"], large.value.details["limit"]) == (url, 1_000_000)


@pytest.mark.parametrize("encoding", ["gzip, gzip", "gzip\r\nContent-Encoding: gzip", "br", "deflate"])
@pytest.mark.parametrize("ask", [topology, export])
def test_an_encoding_that_can_hide_gigabytes_is_refused(encoding, ask):
    body = gzip.compress(gzip.compress(b" " * 1_000_000))
    with (
        serving(HEAD, f"Content-Encoding: {encoding}\r\n\r\n".encode(), body) as url,
        closing(RemoteService(url)) as remote,
        pytest.raises(HostUnreachable, match="content encoding"),
    ):
        ask(remote)
