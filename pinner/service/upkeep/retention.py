"""What the central database and an agent's audit trail keep, and for how long."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from pinner.agent.trail.trail import MAX_PAGE, AgentTrailFile
from pinner.model.run.agent_audit import AgentRecord, Anchor, purged_text
from pinner.model.run.audit import AuditAction, Caller, audit_event
from pinner.service.audit.audit_export import export_lines
from pinner.store.audit.agent_chain import AgentChain
from pinner.store.idempotency import KEPT
from pinner.store.retention import Retention
from pinner.whole_file import only_writer, write_durably

CALLER = Caller("retention", "daily", "")
ENDED = timedelta(days=90)
"""The age of a token that expired or was revoked, and of a signed head that a later one covers."""
HINTS = timedelta(hours=1)
"""The time after a guest's latest event, if libvirt does not have the guest on the host."""

Export = Callable[[], Iterable[str]]
"""The lines of a file with the whole audit trail and the agents' trails, which a third party can verify."""
AGES = 2
"""The agent keeps its records this many times as long as the centre before an export, so that every export has the
agent's records that belong to it."""


@dataclass(frozen=True, slots=True)
class Limits:
    runs: timedelta
    plans: timedelta
    audit: timedelta
    audit_folder: Path | None
    """None: the records are kept for ever."""


@dataclass(frozen=True, slots=True)
class Purged:
    rows: Mapping[str, int]

    def __str__(self) -> str:
        """The end of a sentence: ``2 runs, 0 plans, ...``."""
        return ", ".join(f"{number} {kind}" for kind, number in self.rows.items())


def purge(
    store: Retention, limits: Limits, now: datetime, is_kept: Callable[[str], bool], *, dry_run: bool = False
) -> Purged:
    """Deletes what is old, but no audit records; ``is_kept`` says whether the agent can still undo a run. Raises
    StoreUnavailable."""
    runs = store.purge_runs(now - limits.runs, is_kept, dry_run=dry_run)
    plans, snapshots = store.purge_plans(now - limits.plans, dry_run=dry_run)
    return Purged(
        {
            "runs": runs,
            "probes": store.purge_probes(now - limits.runs, dry_run=dry_run),
            "plans": plans,
            "snapshots": snapshots,
            "tokens": store.purge_tokens(now - ENDED, dry_run=dry_run),
            "signed heads": store.purge_heads(now - ENDED, dry_run=dry_run),
            "idempotency keys": store.purge_answers(now - KEPT, dry_run=dry_run),
        }
    )


def purge_hints(store: Retention, host: str, now: datetime, has_guest: Callable[[str], bool]) -> int:
    """Deletes hints on guests that left the host, and returns their number. Nobody reports the end of a guest that a
    hook reported, or that was evacuated while its host was down. Raises StoreUnavailable, and like ``has_guest``."""
    return store.purge_hints(host, now - HINTS, has_guest)


def export_audit(store: Retention, limits: Limits, now: datetime, host: str, export: Export) -> Path | None:
    """Export the audit trail, and delete its old records. None: nothing is due, or another server did it.

    Only the whole trail can be verified, so an export has the young records, too. It is due once half of the records
    are old: a record is written about twice at most. Raises StoreUnavailable, HostUnreachable where an agent does not
    answer, and Busy where the trails are never at rest; no record is deleted then.
    """
    if limits.audit_folder is None:
        return None
    with only_writer(limits.audit_folder):
        old = store.old_records(now - limits.audit, now)
        if old is None or old.last.seq - old.first + 1 < old.newest - old.last.seq:
            return None
        path = limits.audit_folder / f"audit-{old.first}-{old.newest}.jsonl.gz"
        write_durably(path, export())
        after = purged_text(old.last)
        event = audit_event(CALLER, now, AuditAction.AUDIT_EXPORT, host, path.name, "exported", after=after)
        if store.purge_records(old, event):
            return path
        path.unlink(missing_ok=True)
        return None


def cut_chain(chain: AgentChain, trail: AgentTrailFile, folder: Path, limits: Limits, now: datetime) -> Path | None:
    """Move the old records from the chain to a file in the agent's own folder. None: no record is old enough. Raises
    StoreUnavailable."""
    last = chain.old(now - AGES * limits.audit, now)
    if last is None:
        return None
    records = itertools.takewhile(lambda record: record.seq <= last.seq, _records(chain))
    first = next(records)
    head = trail.head(None)
    path = folder / f"chain-{first.seq}-{last.seq}.jsonl.gz"
    due = ((head.host, record) for record in itertools.chain([first], records))
    write_durably(path, export_lines(Anchor(1, (head,)), (), due, ()))
    chain.cut(last, now)
    return path


def _records(chain: AgentChain) -> Iterator[AgentRecord]:
    after = 0
    while records := chain.records(after, MAX_PAGE):
        yield from records
        after = records[-1].seq
