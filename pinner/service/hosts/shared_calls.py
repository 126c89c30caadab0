"""Calls that are made once for all callers that wait for them."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedCalls(Generic[T]):
    """Makes at most ``at_once`` calls at the same time. Callers that wait for the same call share one.

    A caller joins only a call that waits to begin: one that began earlier could miss what the caller has just done.
    """

    def __init__(self, at_once: int) -> None:
        self._slots = threading.Semaphore(at_once)
        self._lock = threading.Lock()
        self._waiting: dict[object, Future[T]] = {}

    def call(self, key: object, function: Callable[[], T]) -> T:
        """``function`` does the same for every caller with an equal ``key``. Raises its exception for all of them."""
        with self._lock:
            shared = self._waiting.get(key)
            if first := shared is None:
                shared = self._waiting[key] = Future()
        if first:
            with self._slots:
                with self._lock:
                    del self._waiting[key]
                _make(shared, function)
        return shared.result()


def _make(shared: Future[T], function: Callable[[], T]) -> None:
    try:
        shared.set_result(function())
    except BaseException as error:
        shared.set_exception(error)
