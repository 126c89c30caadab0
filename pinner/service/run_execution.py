"""Carrying one run out: the agent works, the ledger keeps up, and the caller learns of a refusal at once."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from pinner.agent.protocol import Progress
from pinner.model.errors import HostUnreachable, PinnerError, StoreUnavailable, Unanswered
from pinner.model.journal import Entry, Run, is_final
from pinner.service.run_recorder import RunRecorder

LOG = logging.getLogger(__name__)

FLUSH_SECONDS = 0.1
"""Between two writes of progress to the store. The agent's journal holds every change at once."""

Call = Callable[[Progress], Run]
"""A call to an agent that ends when the run has ended."""


class RunExecution:
    """One run under way, from the agent's first word to its end."""

    def __init__(
        self,
        run: Run,
        recorder: RunRecorder,
        entries: Callable[[], tuple[Entry, ...]],
        now: Callable[[], datetime],
        notify: Callable[[], None],
    ) -> None:
        """``entries`` asks the agent what all entries have become; ``tell`` is called when the store has news."""
        self._run = run
        self._recorder = recorder
        self._entries = entries
        self._now = now
        self._notify = notify
        self._begun = threading.Event()
        self._refusal: Exception | None = None
        self._flushed = -FLUSH_SECONDS

    def wait_begun(self) -> None:
        """Return when the agent has begun, or ended. Raises what it refused with."""
        self._begun.wait()
        if self._refusal is not None:
            raise self._refusal

    def carry_out(self, call: Call) -> None:
        """Make the call to its end. Nothing is raised: the end is in the store."""
        try:
            self._end(call)
        except StoreUnavailable:
            LOG.exception(
                "the end of run %s is in its agent's journal alone; it is copied when next asked for", self._run.id
            )
        finally:
            self._begun.set()
            self._notify()

    def _end(self, call: Call) -> None:
        try:
            ended = call(self._progress)
        except Exception as error:
            if not isinstance(error, PinnerError):
                LOG.exception("run %s failed", self._run.id)
            self._fail(error)
            return
        self._recorder.close(ended, self._entries())

    def _fail(self, error: Exception) -> None:
        failed = replace(self._run, state="failed", ended_at=self._now(), error=str(error))
        begun = self._begun.is_set()
        if not begun:
            self._refusal = error
        if isinstance(error, Unanswered) or (begun and isinstance(error, (HostUnreachable, StoreUnavailable))):
            LOG.error("how run %s ends its agent's journal tells, and is asked for later: %s", self._run.id, error)
        elif begun:
            self._recorder.close(failed, self._entries())
        else:
            self._recorder.refuse(failed, error.code if isinstance(error, PinnerError) else PinnerError.code)

    def _progress(self, entry: Entry, _total: int) -> None:
        """Never raises: a database that is lost meanwhile must not stop an apply half way."""
        try:
            if not self._begun.is_set():
                self._begin()
            self._recorder.note(entry)
            if time.monotonic() - self._flushed >= FLUSH_SECONDS:
                self._flushed = time.monotonic()
                self._recorder.flush()
                self._notify()
        except (StoreUnavailable, HostUnreachable) as error:
            LOG.warning("the progress of run %s is not stored yet: %s", self._run.id, error)

    def _begin(self) -> None:
        """Note all that the run is about to do, and let the caller go."""
        try:
            for entry in self._entries():
                # What has ended meanwhile comes by itself, in its order.
                if not is_final(self._run, entry):
                    self._recorder.note(entry)
        finally:
            self._begun.set()
