"""What the central database and an agent's audit trail keep, and for how long; the rest is deleted once a day."""

import itertools
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pinner.agent.trail.trail import MAX_PAGE, AgentTrailFile
from pinner.model.errors import PinnerError
from pinner.model.run.agent_audit import AgentRecord, Anchor, purged_text
from pinner.model.run.audit import AuditAction, Caller, audit_event
from pinner.service.audit.audit_export import export_lines
from pinner.store.audit.agent_chain import AgentChain
from pinner.store.idempotency import KEPT
from pinner.store.retention import Retention
from pinner.whole_file import only_writer, replace, write_durably
from pinner.worker import Worker

CALLER = Caller("retention", "daily", "")
ENDED = timedelta(days=90)
"""The age of a token that expired or was revoked, and of a signed head that a later one covers."""
HINTS = timedelta(hours=1)
"""The time after a guest's latest event, if libvirt does not have the guest on the host."""

Export = Callable[[], Iterable[str]]
"""The lines of a file with the whole audit trail and the agents' trails, which a third party can verify."""
AGES = 2
"""The agent keeps its records so many times longer than the centre before an export, so each export is complete."""


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
    """Audit records stay; ``is_kept`` says whether the agent can still undo a run. Raises StoreUnavailable."""
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
    """Deletes hints on guests that left the host, and returns their number: nobody reports the end of a guest that a
    hook reported, or that was evacuated. Raises StoreUnavailable, and like ``has_guest``."""
    return store.purge_hints(host, now - HINTS, has_guest)


def export_audit(store: Retention, limits: Limits, now: datetime, host: str, export: Export) -> Path | None:
    """Export the audit trail, and delete its old records. None: nothing is due, or another server did it. Only the
    whole trail can be verified, so an export has the young records, too. It is due once half of the records are old: a
    record is written about twice at most. Raises StoreUnavailable, HostUnreachable, and Busy where the trails are never
    at rest; no record is deleted then."""
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
    """Move the chain's old records to a file in the agent's folder. None: there are none. Raises StoreUnavailable."""
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


LOG = logging.getLogger(__name__)

FIRST_SECONDS = 60.0
"""The first time is soon after the start, because a server may never run for a whole day."""

DAY_SECONDS = 86400.0

AHEAD = timedelta(days=14)
"""A clock that is further ahead of the last daily work is not believed at once. A token is kept for 90 days after its
end, so a smaller error deletes no valid one."""


_ALMOST_A_DAY = timedelta(hours=23)
"""The thread waits by another clock than that of the calendar."""


class Calendar:
    """Tells a wrong clock from a host that was off, by a file with two times: the last believed one, and the time by
    the clock since when another is waited for. What is deleted is gone for good, so a clock that is far ahead counts
    only after some days, in which somebody can set it. One far behind counts after a day: the right one must not look
    ahead."""

    def __init__(self, file: Path, now: Callable[[], datetime]) -> None:
        self._file = file
        self._now = now
        self._times()  # before the first daily work: a clock can be wrong at the second start

    def today(self) -> datetime | None:
        """The time by which old rows may be deleted; None, with a warning, where the clock may be wrong."""
        now = self._now()
        if (times := self._times()) is None:
            LOG.warning("nothing is deleted today: %s, the time of the last daily work, could not be read", self._file)
            return None
        believed, since = times
        if abs(now - believed) <= AHEAD:
            return now if self._write(now, now) else None
        waited = now - since
        if _ALMOST_A_DAY <= waited <= AHEAD:
            believed, since = min(believed + AHEAD, now), now
        elif not timedelta() <= waited <= AHEAD:
            since = now
        if not self._write(believed, since):
            return None
        if now - believed <= AHEAD:
            return now
        LOG.warning(
            "nothing is deleted today: the clock says %s, which is far ahead of %s, the time of the last daily work. "
            "Set the clock; if it is right, wait for %d days, or delete old rows by pinner-manage db purge",
            *(f"{at:%Y-%m-%d %H:%M}" for at in (now, believed)),
            -((believed + AHEAD - now) // (AHEAD - timedelta(seconds=DAY_SECONDS))),
        )
        return None

    def _times(self) -> tuple[datetime, datetime] | None:
        try:
            believed, since = map(datetime.fromisoformat, self._file.read_text(encoding="ascii").split())
            return believed.astimezone(UTC), since.astimezone(UTC)
        except (OSError, ValueError, OverflowError):
            now = self._now()
            self._write(now, now)
            return None

    def _write(self, believed: datetime, since: datetime) -> bool:
        try:
            replace(self._file, f"{believed.isoformat()}\n{since.isoformat()}\n".encode())
        except OSError as error:
            LOG.warning("nothing is deleted: the time of the daily work cannot be written: %s", error)
            return False
        return True


class Daily(Worker):
    def __init__(self, name: str, work: Callable[[datetime], None], calendar: Calendar) -> None:
        super().__init__(name)  # without a limit: a purge of a large database takes as long as it takes
        self._work = work
        self._calendar = calendar

    def _repeat(self) -> None:
        wait = FIRST_SECONDS
        while not self._stop.wait(wait):
            wait = DAY_SECONDS
            try:
                if today := self._calendar.today():
                    self._work(today)
            except PinnerError as error:
                LOG.warning("%s failed, next attempt in a day: %s", self._thread.name, error)
            except Exception:
                LOG.exception("%s failed, next attempt in a day", self._thread.name)
