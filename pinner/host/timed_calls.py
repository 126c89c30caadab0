"""Calls that may hang, made so that their callers wait no longer than agreed.

A call that is under way cannot be taken back, and its answer may come late. So the calls about one thing are made one
after the other, in the order in which they were asked for, the overdue ones too: what is undone stays undone.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

_IN_VAIN = 2
"""How often a thing that does not answer is waited for: for a call, and for what undoes it."""


class TimedCalls:
    """Makes each call in a thread of its own. May be used by several threads."""

    def __init__(self, seconds: float) -> None:
        """Every call is waited for so long."""
        self.seconds = seconds
        self._guard = threading.Lock()
        self._last: dict[str, threading.Thread] = {}
        """The latest call about each thing, while it is under way or overdue."""
        self._in_vain: dict[str, int] = {}

    def call(self, about: str, work: Callable[[], T]) -> T:
        """Do the work when all earlier calls about the same thing are done. Raises what it raises, and TimeoutError:
        it is done all the same, later."""
        answer: Future[T] = Future()
        with self._guard:
            earlier = self._last.get(about)
            in_vain = self._in_vain.get(about, 0) if earlier is not None and earlier.is_alive() else 0
            thread = threading.Thread(target=_work, args=(work, answer, earlier), name=f"call {about}", daemon=True)
            thread.start()
            self._last[about] = thread
        thread.join(self.seconds if in_vain < _IN_VAIN else 0)
        with self._guard:
            if thread.is_alive():
                self._in_vain[about] = in_vain + 1
                raise TimeoutError
            self._in_vain.pop(about, None)
            if self._last.get(about) is thread:
                del self._last[about]
        return answer.result()


def _work(work: Callable[[], T], answer: "Future[T]", earlier: threading.Thread | None) -> None:
    if earlier is not None:
        earlier.join()
    try:
        answer.set_result(work())
    except BaseException as error:  # handed to the caller, whatever it is
        answer.set_exception(error)
