from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinner.api.http.messages import RequestRefused
from pinner.api.http.reader import ClientLimits, RequestReader

THREE = (
    b"POST /a?b=c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello"
    b"GET /d HTTP/1.1\r\nHost: localhost\r\nX-Y: z\r\n\r\n"
    b"GET /e HTTP/1.1\r\nHost : localhost\r\n\r\n"
)


def read(parts):
    reader = RequestReader(ClientLimits())
    return [item for part in parts for item in reader.feed(part)]


@given(st.lists(st.integers(0, len(THREE)), max_size=40))
def test_requests_are_the_same_however_their_bytes_arrive(cuts):
    edges = [0, *sorted(cuts), len(THREE)]
    post, get, refused = read(THREE[a:b] for a, b in pairwise(edges))
    assert (post.method, post.target, bytes(post.body)) == ("POST", b"/a?b=c", b"hello")
    assert (get.method, get.target, get.headers) == ("GET", b"/d", [(b"host", b"localhost"), (b"x-y", b"z")])
    assert refused.status == 400


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_no_bytes_break_the_reader(parts):
    found = read(parts)
    assert all(not isinstance(item, RequestRefused) for item in found[:-1]), "nothing is read after a refusal"


@pytest.mark.parametrize("cut", [0, 5, 9, 12, 17, 19])
@pytest.mark.parametrize("before", [b"", b"\r\n", b"GET /d HTTP/1.1\r\nHost: localhost\r\n\r\n"])
@pytest.mark.parametrize(
    "line", [b"GET /a RTSP/1.0", b"SOURCE /a ICE/1.0", b"DESCRIBE /a RTSP/1.0", b"GET /a?HTTP/1.0 RTSP/1.0"]
)
def test_another_protocol_is_not_read_as_http(line, before, cut):
    whole = before + line + b"\r\nHost: localhost\r\n\r\n"
    refused = read([whole[: len(before) + cut], whole[len(before) + cut :]])[-1]
    assert refused.status == 400
    assert refused.message == f"{line.split()[-1][:-4].decode()!r} is not supported; use HTTP/1.1"


def test_many_requests_at_once_are_read_in_order():
    whole = b"".join(b"\r\nGET /%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % number for number in range(3_000))
    assert [request.target for request in read([whole])] == [b"/%d" % number for number in range(3_000)]


@pytest.mark.parametrize("callback", ["on_url", "on_header", "on_headers_complete", "on_body"])
def test_a_request_without_memory_for_it_can_be_tried_again(monkeypatch, callback):
    def full(*_):
        raise MemoryError

    monkeypatch.setattr(RequestReader, callback, full)
    (refused,) = read([THREE])
    assert (refused.status, refused.code) == (503, "overloaded")


def test_the_client_waits_for_continue_only_before_a_body_that_is_accepted():
    head = b"POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: "
    accepted, refused = RequestReader(ClientLimits()), RequestReader(ClientLimits())
    assert accepted.feed(head + b"5\r\n\r\n") == []
    assert accepted.wants_continue
    assert refused.feed(head + b"999999999\r\n\r\n")[0].status == 413
    assert not refused.wants_continue
