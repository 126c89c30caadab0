"""HostBackoffs: the back-offs of the hosts' policies, stored so that they outlive a restart."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from pinner.model.backoff import Backoffs
from pinner.model.drift import Drift
from pinner.model.groups import Group
from pinner.planning.placement import backoff
from pinner.store.repositories import Store


class HostBackoffs:
    """The back-offs of all hosts. One thread at a time changes those of a host."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._table = store.backoffs
        self._now = now

    def of(self, host: str) -> Backoffs:
        """The host's back-offs that are not over. None of them ends later than its delay from now, also after a step
        of the clock backwards."""
        stored = self._table.of(host)
        current = backoff.forget(stored, self._now())
        self._put(host, stored, current)
        return current

    def corrected(self, host: str, drifts: Iterable[Drift]) -> Backoffs:
        """Count for each corrected drift how often its target has drifted; returns the new back-offs."""
        stored = self._table.of(host)
        counted = backoff.after_reconcile(drifts, stored, self._now())
        self._put(host, stored, counted)
        return counted

    def failed(self, host: str, errors: Mapping[Group, str]) -> Backoffs:
        """Count for each group that it could not be placed; returns the new back-offs."""
        stored = self._table.of(host)
        counted = backoff.after_failures(errors, stored, self._now())
        self._put(host, stored, counted)
        return counted

    def _put(self, host: str, stored: Backoffs, current: Backoffs) -> None:
        if current != stored:
            self._table.put(host, current, self._now())
