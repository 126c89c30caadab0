"""Requests that two HTTP parsers could read differently: the server answers once, and closes the connection."""

import pytest
from support.server.raw_http import exchange

pytestmark = pytest.mark.fault(61)

SMUGGLED = b"GET /v1/hosts HTTP/1.1\r\nHost: localhost\r\n\r\n"
"""A request that a client hides behind a malformed one. No answer to it may arrive."""
POST = b"POST /v1/hosts/h1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
GET = b"GET /healthcheck HTTP/1.1\r\nHost: localhost\r\n"

MALFORMED = {
    "a space before the colon": POST + b"Content-Length : 3\r\n\r\n{ }",
    "a tab before the colon": POST + b"Content-Length\t: 3\r\n\r\n{ }",
    "two equal lengths": POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\n{ }",
    "two lengths": POST + b"Content-Length: 3\r\nContent-Length: 99\r\n\r\n{ }",
    "a list of lengths": POST + b"Content-Length: 3, 3\r\n\r\n{ }",
    "a length with a sign": POST + b"Content-Length: +3\r\n\r\n{ }",
    "a negative length": POST + b"Content-Length: -3\r\n\r\n{ }",
    "a length in other digits": POST + "Content-Length: ٣\r\n\r\n{ }".encode(),
    "an empty length": POST + b"Content-Length: \r\n\r\n",
    "a length beyond 64 bits": POST + b"Content-Length: 99999999999999999999999\r\n\r\n",
    "a length and a transfer encoding": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a transfer encoding and a length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "lines that end with LF": b"GET /healthcheck HTTP/1.1\nHost: localhost\n\n",
    "one header that ends with LF": b"GET /healthcheck HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n",
    "one header that ends with CR": b"GET /healthcheck HTTP/1.1\r\nHost: localhost\rX: y\r\n\r\n",
    "a head that ends with LF": GET + b"\n",
    "a folded header": GET + b"X: a\r\n b\r\n\r\n",
    "a folded first header": b"GET /healthcheck HTTP/1.1\r\n Host: localhost\r\n\r\n",
    "NUL in a value": GET + b"X: a\0b\r\n\r\n",
    "NUL in a name": GET + b"X\0: a\r\n\r\n",
    "NUL in the path": b"GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a control character in a value": GET + b"X: a\x01b\r\n\r\n",
    "a header without a colon": GET + b"X\r\n\r\n",
    "two hosts": GET + b"Host: example.org\r\n\r\n",
    "no host": b"GET /healthcheck HTTP/1.1\r\n\r\n",
    "no version": b"GET /healthcheck\r\n\r\n",
    "another version": b"GET /healthcheck HTTP/2.0\r\nHost: localhost\r\n\r\n",
    "a tab in the request line": b"GET\t/healthcheck\tHTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a target that is no path": b"GET ftp://localhost/healthcheck HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an encoded slash": b"GET /v1%2Fhosts HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "two slashes at the begin": b"GET //v1/hosts HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an encoded slash in a name": b"GET /v1/hosts/a%2f..%2fh1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a tunnel": b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a TLS handshake": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}
REFUSED = {
    "bytes after a 411": (411, POST + b"Transfer-Encoding: chunked\r\n\r\n"),
    "chunks after a 411": (411, POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
    "chunks after a 411 (HTTP/1.0)": (
        411,
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    ),
    "bytes after an unknown transfer encoding": (411, POST + b"Transfer-Encoding: xchunked\r\n\r\n"),
    "bytes after a 413": (413, POST + b"Content-Length: 99999\r\n\r\n"),
    "bytes after a 431": (431, GET + b"X: " + b"a" * 70_000 + b"\r\n\r\n"),
}


@pytest.mark.parametrize("request_bytes", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_request_is_400_and_closes_the_connection(server, request_bytes):
    answers = exchange(server.url, request_bytes + SMUGGLED)
    assert answers.statuses == [400], answers.raw
    assert answers.error["code"] == "invalid"
    assert b"Connection: close" in answers.raw
    assert b"X-Openstack-Request-Id: req-" in answers.raw


@pytest.mark.parametrize(("status", "request_bytes"), REFUSED.values(), ids=REFUSED)
def test_no_byte_after_a_refusal_is_read_as_a_request(server, status, request_bytes):
    answers = exchange(server.url, request_bytes, SMUGGLED, SMUGGLED, pause=0.1)
    assert answers.statuses == [status], answers.raw


def test_nothing_is_read_after_the_last_request(server):
    answers = exchange(server.url, GET + b"Connection: close\r\n\r\n", SMUGGLED, pause=0.1)
    assert answers.statuses == [200]


def test_an_upgrade_is_ignored(server):
    """A client that does not wait for the answer, and goes on in another protocol, is refused."""
    upgrade = GET + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    last = GET + b"Connection: close\r\n\r\n"
    assert exchange(server.url, upgrade + last).statuses == [200, 200]
    assert exchange(server.url, upgrade + b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").statuses == [200, 400]


def test_a_malformed_request_does_not_take_back_the_one_before(server):
    answers = exchange(server.url, GET + b"\r\n" + POST + b"Content-Length : 3\r\n\r\n{ }" + SMUGGLED)
    assert answers.statuses == [200, 400]


def test_requests_of_one_connection_are_answered_in_order(server):
    last = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert exchange(server.url, SMUGGLED + GET + b"\r\n" + last).statuses == [200, 200, 404]


def test_a_client_that_reads_nothing_cannot_queue_requests(server):
    answers = exchange(server.url, (GET + b"\r\n") * 1000)
    assert len(answers.statuses) < 50


def test_an_absolute_target_names_path_and_host(server):
    answers = exchange(
        server.url, b"GET http://localhost/healthcheck HTTP/1.1\r\nHost: evil\r\nConnection: close\r\n\r\n"
    )
    assert answers.statuses == [200]


def test_a_header_with_an_underscore_is_not_the_one_with_a_hyphen(server):
    head = POST.replace(b"Content-Type", b"Content_Type") + b"Content-Length: 2\r\nConnection: close\r\n\r\n"
    assert exchange(server.url, head + b"{}").statuses == [415]
