"""A failure that repeats fills no log."""

import logging
import threading
from collections.abc import Callable

import pytest

from pinner.repeated import SECONDS, Repeated

LOG = logging.getLogger("test")


@pytest.fixture
def clock() -> list[float]:
    return [1000.0]


@pytest.fixture
def failing(clock: list[float]) -> Repeated:
    return Repeated(LOG, lambda: clock[0])


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    return lambda: [record.getMessage() for record in caplog.records]


def test_a_failure_that_lasts_is_logged_once_a_minute_and_counted(failing, clock, told):
    for _ in range(3):
        failing.warn("no %s", "file")
    clock[0] += SECONDS
    failing.warn("no %s", "file")
    assert told() == ["no file", "no file (2 times more since the last line)"]


def test_the_end_of_a_failure_is_logged_once(failing, told):
    failing.over("works")
    failing.warn("fails")
    failing.over("works")
    failing.over("works")
    assert told() == ["fails", "works"]


def test_a_failure_that_comes_and_goes_is_logged_once_a_minute(failing, clock, told):
    for _ in range(3):
        failing.warn("fails")
        failing.over("works")
    clock[0] += SECONDS
    failing.warn("fails")
    assert told() == ["fails", "works", "fails (2 times more since the last line)"]


def test_a_failure_that_two_threads_meet_is_logged_once(failing, told):
    """The second thread meets the failure while the first one writes the line."""

    class MeetsItToo(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            LOG.removeHandler(self)
            other = threading.Thread(target=failing.warn, args=("fails",))
            other.start()
            other.join(60)

    LOG.addHandler(MeetsItToo())
    failing.warn("fails")
    assert told() == ["fails"]


def failed(failing):
    try:
        raise ValueError("a mistake")
    except ValueError:
        failing.exception("not foreseen")


def test_an_unforeseen_error_is_logged_once_a_minute_with_its_traceback(failing, clock, caplog):
    for _ in range(3):
        failed(failing)
    clock[0] += SECONDS
    failed(failing)
    messages = [(each.levelname, each.getMessage(), each.exc_info[0]) for each in caplog.records]
    more = "not foreseen (2 times more since the last line)"
    assert messages == [("ERROR", "not foreseen", ValueError), ("ERROR", more, ValueError)]


def test_a_foreseen_failure_does_not_hide_an_unforeseen_one(failing, told):
    failing.warn("fails")
    failed(failing)
    failing.over("works")
    assert told() == ["fails", "not foreseen", "works"]
