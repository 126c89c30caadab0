"""A connect to a Unix socket whose queue has room for one connection, and is full."""

import signal
import socket
import threading

import pytest

from pinner.unix_connect import connect


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
        accepting.start()
        connect(second, full.getsockname(), 60.0)
        accepting.join()


@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_it_does_not_wait_for_ever(full, seconds):
    with socket.socket(socket.AF_UNIX) as second, pytest.raises(BlockingIOError):
        connect(second, full.getsockname(), seconds)


def test_a_signal_does_not_count_as_a_connection(full):
    former = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with socket.socket(socket.AF_UNIX) as second, pytest.raises(OSError):
            connect(second, full.getsockname(), 0.5)
    finally:
        signal.signal(signal.SIGALRM, former)
