"""Retention: what the central database keeps, and for how long."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from pinner.model.audit import AuditAction, Caller, audit_event
from pinner.store.repositories import Retention

CALLER = Caller("retention", "daily", "")


@dataclass(frozen=True, slots=True)
class Limits:
    """How long each kind of row is kept."""

    runs: timedelta
    plans: timedelta
    audit: timedelta
    audit_folder: Path | None
    """Where audit records are exported to; None: they are kept."""


@dataclass(frozen=True, slots=True)
class Purged:
    """What was deleted, or would be."""

    runs: int
    plans: int
    snapshots: int
    audit_file: Path | None
    """The file that deleted audit records are in; None: no record was deleted."""


def purge(
    store: Retention, limits: Limits, now: datetime, host: str, is_kept: Callable[[str], bool], *, dry_run: bool = False
) -> Purged:
    """Delete what is older than the limits; ``is_kept`` says whether the agent can still undo a run. ``dry_run`` only
    counts, and exports no audit record. Raises StoreUnavailable."""
    runs = store.purge_runs(now - limits.runs, is_kept, dry_run=dry_run)
    plans, snapshots = store.purge_plans(now - limits.plans, dry_run=dry_run)
    file = None
    if limits.audit_folder is not None and not dry_run:
        event = audit_event(CALLER, now, AuditAction.AUDIT_EXPORT, host, "", "")
        file = store.export_audit(limits.audit_folder, now - limits.audit, event)
    return Purged(runs, plans, snapshots, file)
