"""The CPUs of the hosts that guests migrate to. A release waits for their answer only for a moment."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pinner.model.cpuset import CpuSet
from pinner.model.errors import PinnerError

LOG = logging.getLogger(__name__)

WAIT_SECONDS = 0.3
"""How long the first releases wait for a destination. Later ones to the same destination do not wait again."""
PATIENCE = 5.0
"""Seconds in which a destination may answer. Releases use a late answer, too, as soon as it is there."""
KEEP_SECONDS = 60.0
"""How long an answer, or a missing one, is remembered."""
MAX_OPEN = 64
"""Questions without an answer at one time. Beyond that a destination counts as one that does not answer."""


@dataclass
class _Question:
    asked: float
    answered: threading.Event = field(default_factory=threading.Event)
    cpus: CpuSet = CpuSet()

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() < self.asked + KEEP_SECONDS


class Destinations:
    """Asks each destination once within KEEP_SECONDS. Several threads may use it."""

    def __init__(self, ask: Callable[[str], CpuSet]) -> None:
        """``ask`` returns the online CPUs of a host, or raises PinnerError."""
        self._ask = ask
        self._guard = threading.Lock()
        self._questions: dict[str, _Question] = {}

    def cpus(self, host: str) -> CpuSet:
        """The online CPUs of a host; none if it has not answered WAIT_SECONDS after the question."""
        question = self._question(host)
        question.answered.wait(max(question.asked + WAIT_SECONDS - time.monotonic(), 0.0))
        return question.cpus

    def _question(self, host: str) -> _Question:
        """The question to the host, which is asked now if it was not asked lately."""
        with self._guard:
            self._questions = {name: known for name, known in self._questions.items() if known.is_fresh}
            if host in self._questions:
                return self._questions[host]
            question = self._questions[host] = _Question(time.monotonic())
            open_ones = sum(not known.answered.is_set() for known in self._questions.values())
        if open_ones > MAX_OPEN:
            question.answered.set()
        else:
            # A thread of its own, because a server that sends its answer slowly would hold the release.
            work = threading.Thread(target=self._answer, args=(host, question), name="destination", daemon=True)
            work.start()
        return question

    def _answer(self, host: str, question: _Question) -> None:
        try:
            question.cpus = self._ask(host)
        except PinnerError as error:
            LOG.info("destination %s did not say which CPUs it has: %s", host, error)
        except Exception:  # an error in this program must not end without a word
            LOG.exception("destination %s could not be asked for its CPUs", host)
        finally:
            question.answered.set()
