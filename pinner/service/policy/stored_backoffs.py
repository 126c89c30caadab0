"""The failures of a run, and the stored backoffs of a host."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

from pinner.model.change import Group, Target, group_name, group_of, is_of_the_host
from pinner.model.errors import PinnerError
from pinner.model.kinds import KINDS
from pinner.model.policy import Backoffs, Drift
from pinner.model.run.audit import AuditAction, Caller, audit_event
from pinner.model.run.journal import Entry
from pinner.planning.policy import backoff_counts
from pinner.store.repositories import Store

Failures = dict[Group, tuple[Target, str]]
"""The target whose change failed, and its error, by group."""


def failures_of(entries: Iterable[Entry]) -> Failures:
    failures: Failures = {}
    for entry in entries:
        if entry.state in ("failed", "stuck") and entry.error:
            failures.setdefault(group_of(entry.change.target), (entry.change.target, entry.error))
    return failures


def are_of_the_host(failures: Failures) -> bool:
    return any(is_of_the_host(target) for target, _ in failures.values())


def moving_targets(refusals: Sequence[PinnerError]) -> Failures:
    """The groups that make plan after plan stale. A guest counts if two refusals name it: a restart makes one stale."""
    moving: Failures = {}
    times: Counter[Group] = Counter()
    for refusal in refusals if len(refusals) > 1 else ():
        named = _moved(refusal)
        times.update(named.keys())
        moving |= named
    return {group: why for group, why in moving.items() if times[group] > 1 or why[0].kind == "process"}


def _moved(refusal: PinnerError) -> Failures:
    moved: Failures = {}
    for fields in refusal.details.get("targets", ()):
        target = Target(**fields)
        if not is_of_the_host(target):
            why = next((text for text in refusal.details["moved"] if text.startswith(str(target))), str(target))
            error = f"{why}, after a new plan: {KINDS[target.kind].movers} sets its affinity"
            moved.setdefault(group_of(target), (target, error))
    return moved


class HostBackoffs:
    """Several threads and servers may use them."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._table = store.backoffs
        self._audit = store.audit
        self._now = now

    def of(self, host: str) -> Backoffs:
        """The backoffs that are not over. Where the clock was set back, one from the future begins now."""
        return self._changed(host, backoff_counts.forget)

    def count_corrected(self, host: str, drifts: Iterable[Drift]) -> Backoffs:
        counted = tuple(drifts)
        return self._changed(host, lambda stored, now: backoff_counts.after_reconcile(counted, stored, now))

    def back_off(self, host: str, failures: Failures, caller: Caller) -> Backoffs:
        """For groups that could not be placed; the audit trail gets a record for each."""
        backoffs = self.count_failed(host, {group: error for group, (_, error) in failures.items()})
        for group, (target, error) in failures.items():
            until = backoffs[group].backoff_until.isoformat(timespec="seconds")
            result = f"attempt {backoffs[group].times} failed, skipped until {until}: {error}"
            event = audit_event(caller, self._now(), AuditAction.DRIFT_BACKOFF, host, group_name(target), result)
            self._audit.append(event)
        return backoffs

    def count_failed(self, host: str, errors: Mapping[Group, str]) -> Backoffs:
        return self._changed(host, lambda stored, now: backoff_counts.after_failures(errors, stored, now))

    def _changed(self, host: str, change: Callable[[Backoffs, datetime], Backoffs]) -> Backoffs:
        now = self._now()
        stored = self._table.of(host)
        if change(stored, now) == stored:
            return stored
        return self._table.change(host, lambda latest: change(latest, now), now)
