"""A thread of a server that makes a pass every few seconds."""

import logging
from collections.abc import Callable, Iterable
from typing import TypeVar

from pinner.model.errors import PinnerError
from pinner.repeated import Repeated
from pinner.worker import Worker

LOG = logging.getLogger(__name__)

T = TypeVar("T")

PASS_SECONDS = 5.0

LIMIT_SECONDS = 120.0
"""The longest pass; the thread counts as hung then."""


class Passes(Worker):
    """A pass that fails is logged, and the next one is made."""

    def __init__(self, name: str, make_pass: Callable[[], None], *, first_seconds: float = PASS_SECONDS) -> None:
        super().__init__(name, LIMIT_SECONDS)
        self._first_seconds = first_seconds
        self._make_pass = make_pass
        self._failures = Repeated(LOG)

    def _repeat(self) -> None:
        wait = self._first_seconds
        while not self._stop.wait(wait):
            wait = PASS_SECONDS
            self.heartbeat.beat()
            try:
                self._make_pass()
                self._failures.over(f"{self._thread.name}: the passes succeed again")
            except PinnerError as error:
                self._failures.warn("%s: a pass failed: %s", self._thread.name, error)
            except Exception:
                self._failures.exception("%s: a pass failed", self._thread.name)


def visit(items: Iterable[T], look: Callable[[T], None]) -> None:
    """An item that fails keeps no later one from its look. Raises the first error at the end."""
    first: Exception | None = None
    for item in items:
        try:
            look(item)
        except Exception as error:  # whatever it is: the other items do not depend on it
            first = first or error
    if first is not None:
        raise first
