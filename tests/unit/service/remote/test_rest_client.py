"""The lists, lines and events that a server sends in parts."""

from contextlib import closing

import pytest
from support.server.slow_server import HEAD, serving

from pinner.model.errors import PinnerError
from pinner.service.remote import rest_client
from pinner.service.remote.remote import RemoteService


def test_a_list_without_an_end_is_refused(monkeypatch):
    monkeypatch.setattr(rest_client, "MAX_PAGES", 20)
    body = b'{"items":["h"],"next": "1"}'
    head = HEAD + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
    with (
        serving(head, body) as url,
        closing(RemoteService(url)) as remote,
        pytest.raises(PinnerError, match="more than 20 pages"),
    ):
        remote.hosts()


def test_a_line_without_an_end_is_refused():
    with (
        serving(HEAD, b"\r\n", *[b"x" * (1 << 20)] * 20) as url,
        closing(RemoteService(url)) as remote,
        pytest.raises(PinnerError, match="bytes without an end"),
    ):
        list(remote.export_audit())


def test_a_line_that_is_no_text_is_refused():
    with (
        serving(HEAD, b"Connection: close\r\n\r\n", b"\xff\n") as url,
        closing(RemoteService(url)) as remote,
        pytest.raises(PinnerError, match="not UTF-8 text"),
    ):
        list(remote.export_audit())


def test_an_error_of_the_reader_of_lines_stays_its_own():
    text = rest_client.lines(iter([b"a line\n"]))
    next(text)
    own = UnicodeDecodeError("ascii", b"", 0, 1, "of another text")

    with pytest.raises(UnicodeDecodeError):
        text.throw(own)


def test_unknown_events_of_a_stream_are_ignored():
    words = b": comment\n\nevent: later\ndata: 1\n\nretry: 5\n\nnonsense\n\nevent: end\ndata: {}\n\nevent: cut"
    # In chunks of every size: a chunk need not end where an event ends.
    for size in range(1, len(words)):
        chunks = (words[at : at + size] for at in range(0, len(words), size))
        known = [event for event in rest_client.server_sent_events(chunks) if event[0] in (b"change", b"end", b"error")]
        assert known == [(b"end", b"{}")]
