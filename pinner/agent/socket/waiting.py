"""Waits of the agent that end when the caller disconnects: nobody would get the answer."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_STEP_SECONDS = 0.5
"""How long a wait may outlast the caller."""

_is_left: ContextVar[Callable[[], bool]] = ContextVar("is_left", default=lambda: False)


class CallerLeft(Exception):
    """The caller has disconnected, so the call ends without an answer."""

    def __init__(self) -> None:
        super().__init__("it has disconnected")


@contextmanager
def waits_for(is_left: Callable[[], bool]) -> Iterator[None]:
    """In this block and thread, waits end when ``is_left()`` is true."""
    token = _is_left.set(is_left)
    try:
        yield
    finally:
        _is_left.reset(token)


def require_caller() -> None:
    """Raises CallerLeft. For work in many parts."""
    if _is_left.get()():
        raise CallerLeft


def sleep(seconds: float) -> None:
    """Raises CallerLeft."""
    for step in steps(seconds):
        time.sleep(step)


def steps(seconds: float) -> Iterator[float]:
    """The parts of a wait of ``seconds``, at least one; wait for each. Raises CallerLeft."""
    deadline = time.monotonic() + seconds
    remaining = seconds
    while True:
        yield min(max(remaining, 0.0), _STEP_SECONDS)
        require_caller()
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            return
