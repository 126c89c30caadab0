"""The audit trail's actions, events and records, and the result of its check."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

POLICY_ACTOR = "policy"
"""Of the policy controller."""
UNAUTHENTICATED = "unauthenticated"
RECOVERY = "pinner"
"""The agent recovers by itself."""
OWN_ACTORS = frozenset({POLICY_ACTOR, UNAUTHENTICATED, RECOVERY})
"""No caller may be named like these."""


class AuditAction(StrEnum):
    """Every action that pinner writes to the audit trail. None may be removed: a trail keeps its records, and verify
    calls an unknown action forged.

    Grammar: ``noun.verb``, lower-case letters with one dot. The noun is the record's subject. The verb says what was
    done to it; for ``guest`` and ``drift`` also what happened (event, found, backoff).

    snapshot.take   was taken and stored
    plan.create     was computed and stored
    run.apply       an apply was started or refused
    run.rollback    a rollback was started or refused
    run.release     a run that gives a guest its prior masks was started or refused
    run.change      one change was made, undone, or failed
    run.recover     recovery ended a run whose process had died
    run.end         ended
    run.watch       the watch ended: guests are worse, not worse, or were not watched
    probe.begin     was started: it applies a plan and rolls it back again and again
    probe.end       ended; the result has its verdict, or why there is none
    policy.set      a host's policy was set
    policy.delete   a host's policy was deleted
    guest.event     libvirt's hook script, Nova or a caller reported an event of a guest
    guest.exclude   was excluded from placement, or included again
    drift.found     the policy does not enforce, or its plan would make the objective worse
    drift.backoff   pinner waits: a target was moved away again and again, or could not be placed
    token.create    an API token was made
    token.revoke    an API token was revoked
    request.refuse  one or several requests were answered with status 401, 403 or 429
    audit.export    records were exported to a file, and are then deleted from the database
    """

    SNAPSHOT_TAKE = "snapshot.take"
    PLAN_CREATE = "plan.create"
    RUN_APPLY = "run.apply"
    RUN_CHANGE = "run.change"
    RUN_ROLLBACK = "run.rollback"
    RUN_RELEASE = "run.release"
    RUN_RECOVER = "run.recover"
    RUN_END = "run.end"
    RUN_WATCH = "run.watch"
    PROBE_BEGIN = "probe.begin"
    PROBE_END = "probe.end"
    POLICY_SET = "policy.set"
    POLICY_DELETE = "policy.delete"
    GUEST_EVENT = "guest.event"
    GUEST_EXCLUDE = "guest.exclude"
    DRIFT_FOUND = "drift.found"
    DRIFT_BACKOFF = "drift.backoff"
    TOKEN_CREATE = "token.create"  # noqa: S105 - an action, not a password
    TOKEN_REVOKE = "token.revoke"  # noqa: S105
    REQUEST_REFUSE = "request.refuse"
    AUDIT_EXPORT = "audit.export"


@dataclass(frozen=True, slots=True)
class Caller:
    actor: str
    origin: str
    """The peer's address, or ``cli`` and the terminal."""
    request_id: str


@dataclass(frozen=True, slots=True)
class AuditEvent:
    at: datetime
    actor: str
    origin: str
    action: AuditAction
    host: str
    subject: str
    before: str
    after: str
    result: str
    request_id: str


def audit_event(
    caller: Caller,
    at: datetime,
    action: AuditAction,
    host: str,
    subject: str,
    result: str,
    *,
    before: str = "",
    after: str = "",
) -> AuditEvent:
    return AuditEvent(at, caller.actor, caller.origin, action, host, subject, before, after, result, caller.request_id)


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """``hash`` covers every other field, ``previous`` included, so that a changed, missing or reordered record is
    found."""

    seq: int
    """Its number, from 1."""
    at: datetime
    actor: str
    origin: str
    action: str
    """An AuditAction's value."""
    host: str
    subject: str
    """The plan, run, target or guest."""
    before: str
    """The value before; often empty."""
    after: str
    """The value after; often empty."""
    result: str
    """`done`, or the outcome in words."""
    request_id: str
    """The request's id; empty where no request asked for the action."""
    previous: str
    """The ``hash`` of the record before; empty in the first."""
    hash: str
    """SHA-256 of all other fields."""


@dataclass(frozen=True, slots=True)
class ChainCheck:
    """A chain without its last records is consistent: only a stored copy of ``head`` shows it."""

    ok: bool
    records: int
    """Checked and correct."""
    broken: int
    """Number of the first wrong record; 0: none is wrong."""
    why: str
    """Empty: none is wrong."""
    head: str
    """Hash of the last correct record."""
