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
    guest.event, guest.exempt, drift.found, drift.backoff"""
    host: str
    subject: str
    before: str
    after: str
    result: str
    request_id: str
    previous: str
    hash: str


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, for the audit trail."""

    actor: str
    origin: str
    """The peer's address, or ``cli`` and the terminal."""
    request_id: str


@dataclass(frozen=True, slots=True)
class Verification:
    """Whether the audit trail is whole. ``broken`` is the first record that is not, 0 if none; ``head`` the last hash,
    to be kept elsewhere: a trail whose tail was cut off shows only against it."""

    ok: bool
    records: int
    broken: int
    why: str
    head: str
