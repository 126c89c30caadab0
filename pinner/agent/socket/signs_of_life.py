"""Signs of life of an agent in another process: each message is one, whichever call it belongs to. The kernel accepts
connections for a stopped agent: each caller would wait for its own answer, with a thread."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

MAX_UNHEARD = 8
"""Calls that may wait for their first sign of life at once; a further one waits for a place only for a moment."""


class Silent(Exception):
    """The agent has given no sign of life for ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"no sign of life for {seconds:.1f} s")
        self.seconds = seconds


class SignsOfLife:
    """Knows whether an agent is silent. While it is, one caller at a time asks it, and the others fail at once."""

    def __init__(self, silence: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``silence``: seconds without a sign after which the agent is silent."""
        self._silence = silence
        self._clock = clock
        self._changed = threading.Condition()
        self._unheard: dict[object, float] = {}
        """When each call began that waits for its first sign."""
        self._heard = clock()
        self._silent_since: float | None = None

    @contextmanager
    def call(self) -> Iterator[Callable[[], None]]:
        """A call to the agent; gives the function to call at each sign of life.

        Raises Silent without a call, where another caller finds out already. A TimeoutError in the block says that no
        sign came in time; it becomes Silent.
        """
        token = object()
        self._begin(token)
        try:
            yield lambda: self._hear(token)
        except TimeoutError:
            raise Silent(self._lose(token)) from None
        finally:
            with self._changed:
                self._unheard.pop(token, None)
                self._changed.notify_all()

    def _begin(self, token: object) -> None:
        with self._changed:
            self._refuse_if_silent()
            if not self._changed.wait_for(lambda: len(self._unheard) < MAX_UNHEARD, self._silence / 10):
                raise Silent(self._clock() - min(self._unheard.values()))
            self._refuse_if_silent()
            self._unheard[token] = self._clock()

    def _refuse_if_silent(self) -> None:
        now = self._clock()
        if not self._unheard:
            return
        if self._silent_since is not None:
            raise Silent(now - self._silent_since)
        if (waited := now - min(self._unheard.values())) >= self._silence / 2:
            raise Silent(waited)

    def _hear(self, token: object) -> None:
        with self._changed:
            self._heard, self._silent_since = self._clock(), None
            self._unheard.pop(token, None)
            self._changed.notify_all()

    def _lose(self, token: object) -> float:
        with self._changed:
            now = self._clock()
            began = self._unheard.get(token, now - self._silence)
            if now - self._heard >= self._silence:
                self._silent_since = self._silent_since if self._silent_since is not None else began
            return now - (self._silent_since if self._silent_since is not None else began)
