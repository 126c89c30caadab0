"""Refused requests in the audit trail: at most so many a minute that nobody can fill it."""

import logging
import threading
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from pinner.model.run.audit import UNAUTHENTICATED, AuditAction, AuditEvent, Caller, audit_event
from pinner.render import visible

LOG = logging.getLogger(__name__)

PER_ORIGIN = 10
TOTAL = 60
WINDOW_SECONDS = 60.0
MAX_TEXT = 200
"""Characters of a text that the caller chose."""
SEVERAL = "several origins"


class AuditSink(Protocol):
    def append(self, *events: AuditEvent) -> None:
        pass


class RefusalAudit:
    """A window of ``window_seconds`` starts with a refusal. At its end, one record counts the refusals above PER_ORIGIN
    and TOTAL."""

    def __init__(
        self, audit: AuditSink, now: Callable[[], datetime], *, window_seconds: float = WINDOW_SECONDS
    ) -> None:
        self._audit = audit
        self._now = now
        self._window_seconds = window_seconds
        self._guard = threading.Lock()
        self._timer: threading.Timer | None = None
        self._recorded: Counter[str] = Counter()
        self._left_out = 0
        self._last_request = ""

    def record(self, caller: Caller, key: str, request: str, result: str) -> None:
        """``key`` names the origin for the limit; ``request`` is method and path."""
        if self._is_counted_only(caller, key):
            return
        self._append(caller, bounded(request), bounded(result))

    def close(self) -> None:
        with self._guard:
            if self._timer:
                self._timer.cancel()
        self._end_window()

    def _is_counted_only(self, caller: Caller, key: str) -> bool:
        with self._guard:
            if self._timer is None:
                self._timer = threading.Timer(self._window_seconds, self._end_window)
                self._timer.daemon = True
                self._timer.start()
            if self._recorded[key] < PER_ORIGIN and self._recorded.total() < TOTAL:
                self._recorded[key] += 1
                return False
            self._left_out += 1
            self._last_request = caller.request_id
            return True

    def _end_window(self) -> None:
        with self._guard:
            left_out, last, self._left_out = self._left_out, self._last_request, 0
            self._recorded.clear()
            self._timer = None
        if left_out:
            counted = f"refused within {self._window_seconds:g} seconds, and not recorded one by one"
            self._append(Caller(UNAUTHENTICATED, SEVERAL, last), f"{left_out} more requests", counted)

    def _append(self, caller: Caller, subject: str, result: str) -> None:
        event = audit_event(caller, self._now(), AuditAction.REQUEST_REFUSE, "", subject, result)
        try:
            self._audit.append(event)
        except Exception:
            # The request is refused anyway, and its answer must not depend on the database.
            LOG.exception("%s: the refusal could not be recorded: %s: %s", caller.request_id, subject, result)


def bounded(text: str) -> str:
    shown = visible(text[:MAX_TEXT])
    return shown if len(text) <= MAX_TEXT and len(shown) <= MAX_TEXT else f"{shown[:MAX_TEXT]}..."
