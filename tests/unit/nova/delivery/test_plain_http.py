"""A request ends in time, however many addresses a server has."""

import socket
from types import SimpleNamespace

import pytest

from pinner.nova.delivery import plain_http

ADDRESSES = 8


class Connection:
    """A socket of which one address answers, if any; no packet reaches the others."""

    now, answers = 0.0, ""
    """The clock, which only waits move; and the address that answers."""

    def __init__(self, *_):
        self.timeout = None
        self.left = [b"HTTP/1.1 200 OK\r\n\r\nyes", b""]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def settimeout(self, timeout):
        self.timeout = timeout

    def connect(self, address):
        if address[0] != Connection.answers:
            Connection.now += self.timeout
            raise TimeoutError("timed out")

    def sendall(self, _):
        pass

    def recv(self, _):
        return self.left.pop(0)

    def close(self):
        pass


def addresses(host, port, *_, **__):
    """In the place of socket.getaddrinfo."""
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"192.0.2.{number}", port)) for number in range(ADDRESSES)]


@pytest.fixture(autouse=True)
def connection(monkeypatch):
    monkeypatch.setattr(Connection, "now", 100.0)
    monkeypatch.setattr(Connection, "answers", "")
    monkeypatch.setattr(socket, "getaddrinfo", addresses)
    monkeypatch.setattr(socket, "socket", Connection)
    monkeypatch.setattr(plain_http, "time", SimpleNamespace(monotonic=lambda: Connection.now))


def test_a_server_of_which_no_address_answers_takes_no_more_than_the_bound():
    with pytest.raises(OSError, match="timed out"):
        plain_http.get("http://h1:8077/v1", "", None, 5.0)
    assert Connection.now <= 100.0 + 5.0 + 0.01


def test_a_server_of_which_only_the_last_address_answers_is_read(monkeypatch):
    monkeypatch.setattr(Connection, "answers", f"192.0.2.{ADDRESSES - 1}")
    assert plain_http.get("http://h1:8077/v1", "", None, 5.0) == b"yes"


def test_a_status_line_writes_no_line_of_its_own_into_the_log(monkeypatch):
    monkeypatch.setattr(Connection, "answers", "192.0.2.0")
    monkeypatch.setattr(Connection, "recv", lambda *_: b"HTTP/1.1 500 bad\nall is well\x1b[2J\r\n\r\n")
    with pytest.raises(OSError, match=r"500: bad") as raised:
        plain_http.post("http://h1:8077", "/v1", "", b"{}", 5.0)
    assert str(raised.value).isprintable()
