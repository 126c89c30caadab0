"""HostBackoffs: the backoffs of the hosts' policies, stored so that they outlive a restart."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from pinner.model.plan.groups import Group, group_name
from pinner.model.policy.backoff import Backoffs
from pinner.model.policy.drift import Drift
from pinner.model.run.audit import AuditAction, Caller, audit_event
from pinner.planning.placement import backoff
from pinner.service.policy.failures import Failures
from pinner.store.repositories import Store


class HostBackoffs:
    """Several threads and servers may use them: a reconcile counts, and a drift report forgets what is over."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._table = store.backoffs
        self._audit = store.audit
        self._now = now

    def of(self, host: str) -> Backoffs:
        """Those that are not over. None ends later than its delay from now, also after a step of the clock
        backwards."""
        return self._changed(host, backoff.forget)

    def corrected(self, host: str, drifts: Iterable[Drift]) -> Backoffs:
        """Count for each drift how often its target has drifted; returns the new backoffs."""
        found = tuple(drifts)
        return self._changed(host, lambda stored, now: backoff.after_reconcile(found, stored, now))

    def back_off(self, host: str, failures: Failures, caller: Caller) -> Backoffs:
        """Skip these groups for a while, and write that to the audit trail; returns the new backoffs."""
        backoffs = self.failed(host, {group: error for group, (_, error) in failures.items()})
        for group, (target, error) in failures.items():
            until = backoffs[group].backoff_until.isoformat(timespec="seconds")
            result = f"attempt {backoffs[group].times} failed, skipped until {until}: {error}"
            event = audit_event(caller, self._now(), AuditAction.DRIFT_BACKOFF, host, group_name(target), result)
            self._audit.append(event)
        return backoffs

    def failed(self, host: str, errors: Mapping[Group, str]) -> Backoffs:
        """Count for each group that it could not be placed; returns the new backoffs."""
        return self._changed(host, lambda stored, now: backoff.after_failures(errors, stored, now))

    def _changed(self, host: str, change: Callable[[Backoffs, datetime], Backoffs]) -> Backoffs:
        """In one transaction; none if nothing changes."""
        now = self._now()
        stored = self._table.of(host)
        if change(stored, now) == stored:
            return stored
        return self._table.change(host, lambda latest: change(latest, now), now)
