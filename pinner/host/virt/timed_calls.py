"""Calls with a timeout, for work that may hang.

A running call cannot be cancelled. So all calls with the same key, overdue ones too, run in the order of the requests:
a late change never runs after its undo.

A caller waits for an answer, not for a thread: in Python 3.11 `Thread.join` fails if two threads wait for the same one,
or one asks `is_alive`.
"""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from pinner.model.errors import Busy

T = TypeVar("T")

MAX_PENDING = 512
"""Calls with one key that wait for an overdue one, each in a thread: a run undoes its changes of a guest after one has
failed, one call for each vCPU."""

_MAX_TIMEOUTS = 2
"""In a row; then calls with the key do not wait: one timeout for a call and one for its undo."""


KEEP_SECONDS = 5.0

_Job = Callable[[], Callable[[], None]]
"""Does the work, and returns what gives the answer to the caller."""


class TimedCalls:
    """Makes each call in a thread that no other call occupies. Threads may share it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()
        self._last: dict[str, Future[Any]] = {}
        """The latest call of each key, while it runs or is overdue."""
        self._timeouts: dict[str, int] = {}
        self._overdue_since: dict[str, float] = {}
        self._idle: list[SimpleQueue[_Job]] = []

    @property
    def overdue(self) -> float | None:
        """Seconds of the longest overdue call of all keys."""
        now = time.monotonic()
        with self._lock:
            found = [now - at for key, at in self._overdue_since.items() if self._runs(key)]
        return max(found, default=None)

    def _runs(self, key: str) -> bool:
        latest = self._last.get(key)
        return latest is not None and not latest.done()

    def call(self, key: str, work: Callable[[], T], *, later: bool = True) -> T:
        """Do the work after earlier calls with the key. Raises its error, or TimeoutError: it is then done later.

        With ``later`` false, work that would not be waited for is not done: only a change must still be made, or
        undone.
        """
        answer: Future[T] = Future()
        with self._lock:
            earlier = self._last.get(key)
            timeouts = self._timeouts.get(key, 0) if self._runs(key) else 0
            if timeouts >= (MAX_PENDING if later else _MAX_TIMEOUTS):
                raise TimeoutError
            self._start(lambda: _work(work, answer, earlier))
            self._last[key] = answer
        with suppress(TimeoutError):
            answer.exception(self.seconds if timeouts < _MAX_TIMEOUTS else 0)
        with self._lock:
            if not answer.done():
                self._timeouts[key] = timeouts + 1
                if timeouts == 0:
                    self._overdue_since[key] = time.monotonic() - self.seconds
                raise TimeoutError
            self._timeouts.pop(key, None)
            self._overdue_since.pop(key, None)
            if self._last.get(key) is answer:
                del self._last[key]
        return answer.result()

    def _start(self, job: _Job) -> None:
        """The caller has the lock."""
        if self._idle:
            self._idle.pop().put(job)
            return
        jobs: SimpleQueue[_Job] = SimpleQueue()
        jobs.put(job)
        threading.Thread(target=self._serve, args=(jobs,), name="timed call", daemon=True).start()

    def _serve(self, jobs: "SimpleQueue[_Job]") -> None:
        while True:
            try:
                job = jobs.get(timeout=KEEP_SECONDS)
            except Empty:
                with self._lock:
                    if jobs in self._idle:
                        self._idle.remove(jobs)
                        return
                continue  # a call took this thread at the last moment
            give_answer = job()
            # First, so that the caller's next call finds this thread.
            with self._lock:
                self._idle.append(jobs)
            give_answer()
            del job, give_answer  # they hold the caller's values


def _work(work: Callable[[], T], answer: "Future[T]", earlier: "Future[Any] | None") -> Callable[[], None]:
    if earlier is not None:
        earlier.exception()
    try:
        result = work()
    except BaseException as error:  # the caller's thread raises it again
        return partial(answer.set_exception, error)
    return partial(answer.set_result, result)


def answer_in_time(calls: TimedCalls, key: str, what: str, answer: Callable[[], T], *, change: bool) -> T:
    """``what`` names the subject in the error. Raises Busy where it takes too long."""
    try:
        return calls.call(key, answer, later=change)
    except TimeoutError:
        why = f"no answer from libvirt within {calls.seconds:g} s ([libvirt] call_timeout)"
        raise Busy(what, why, overdue=True) from None
