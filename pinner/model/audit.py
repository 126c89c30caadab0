"""One line of the audit trail."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """Who did what to what, from where, with what result. ``hash`` covers every other field, ``previous`` included,
    so that a changed, missing or reordered record shows."""

    seq: int
    at: datetime
    actor: str
    origin: str
    action: str
    """snapshot.take, plan.create, run.apply, run.change, run.rollback, run.release, run.end, policy.set,
    guest.event, guest.exempt, drift.found, drift.flaps"""
    host: str
    subject: str
    before: str
    after: str
    result: str
    request_id: str
    previous: str
    hash: str
