"""A connect to a Unix socket whose queue has room for one connection, and is full."""

import socket
import threading

import pytest

from pinner.unix_connect import limit_connect


@pytest.fixture
def full(tmp_path):
    """The listening socket, whose queue is full."""
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as first:
        listening.bind(str(tmp_path / "s"))
        listening.listen(0)
        first.connect(str(tmp_path / "s"))
        yield listening


def test_it_waits_until_there_is_room(full):
    def accept():
        for _ in range(2):
            full.accept()[0].close()

    accepting = threading.Timer(0.1, accept)
    with socket.socket(socket.AF_UNIX) as second:
        limit_connect(second, 60.0)
        accepting.start()
        second.connect(full.getsockname())
        accepting.join()


@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_it_does_not_wait_for_ever(full, seconds):
    with socket.socket(socket.AF_UNIX) as second:
        limit_connect(second, seconds)
        with pytest.raises(BlockingIOError):
            second.connect(full.getsockname())
