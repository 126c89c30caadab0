"""The store: one database and the repositories of its nouns."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine

from pinner.model.errors import StoreUnavailable
from pinner.model.run.audit import AuditEvent
from pinner.store.audit.agent_heads import AgentHeads
from pinner.store.audit.audit import Audit
from pinner.store.audit.audit_purge import OldRecords, old_records, purge_records
from pinner.store.database import schema
from pinner.store.database.engine import engine_of, make_file
from pinner.store.database.preparation import PREPARATION, Preparation
from pinner.store.database.probe import Probe
from pinner.store.guest_hints import GuestHints
from pinner.store.idempotency import IdempotencyKeys
from pinner.store.plans import Plans
from pinner.store.policy.backoffs import BackoffTable
from pinner.store.policy.policies import Policies
from pinner.store.retention import purge_answers, purge_heads, purge_plans, purge_runs, purge_tokens
from pinner.store.runs.outcomes import Outcomes
from pinner.store.runs.placements import Placements
from pinner.store.runs.probes import Probes, purge_probes
from pinner.store.runs.runs import Runs
from pinner.store.snapshots import Snapshots
from pinner.store.tokens import Tokens

LOG = logging.getLogger(__name__)


class Retention:
    """Deletes old rows of one database; see the functions of the same names."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def purge_runs(self, before: datetime, is_kept: Callable[[str], bool], *, dry_run: bool = False) -> int:
        """See ``retention.purge_runs``."""
        return purge_runs(self._engine, before, is_kept, dry_run=dry_run)

    def purge_probes(self, before: datetime, *, dry_run: bool = False) -> int:
        """See ``probes.purge_probes``."""
        return purge_probes(self._engine, before, dry_run=dry_run)

    def purge_plans(self, before: datetime, *, dry_run: bool = False) -> tuple[int, int]:
        """See ``retention.purge_plans``."""
        return purge_plans(self._engine, before, dry_run=dry_run)

    def purge_tokens(self, before: datetime, *, dry_run: bool = False) -> int:
        """See ``retention.purge_tokens``."""
        return purge_tokens(self._engine, before, dry_run=dry_run)

    def purge_heads(self, before: datetime, *, dry_run: bool = False) -> int:
        """See ``retention.purge_heads``."""
        return purge_heads(self._engine, before, dry_run=dry_run)

    def purge_answers(self, before: datetime, *, dry_run: bool = False) -> int:
        """See ``retention.purge_answers``."""
        return purge_answers(self._engine, before, dry_run=dry_run)

    def purge_hints(self, host: str, before: datetime, is_kept: Callable[[str], bool]) -> int:
        """Delete the hints on guests of a host whose latest event was handled before a moment, unless ``is_kept`` says
        for the guest (by UUID) that the host has it; returns their number."""
        hints = GuestHints(self._engine)
        return hints.forget(host, [guest for guest in hints.old(host, before) if not is_kept(guest)], before)

    def old_records(self, before: datetime, now: datetime) -> OldRecords | None:
        """See ``audit_purge.old_records``."""
        return old_records(self._engine, before, now)

    def purge_records(self, old: OldRecords, event: AuditEvent) -> bool:
        """See ``audit_purge.purge_records``."""
        return purge_records(self._engine, old, event)


@dataclass(frozen=True, slots=True)
class Store:
    """The repositories of one database."""

    snapshots: Snapshots
    plans: Plans
    runs: Runs
    outcomes: Outcomes
    probes: Probes
    audit: Audit
    policies: Policies
    placements: Placements
    backoffs: BackoffTable
    guest_hints: GuestHints
    idempotency_keys: IdempotencyKeys
    tokens: Tokens
    agent_heads: AgentHeads
    retention: Retention
    probe: Probe


@contextmanager
def open_store(url: str) -> Iterator[Store]:
    """The store at an SQLAlchemy URL, with its schema upgraded to the newest. Raises Invalid.

    Where the database cannot be used now, each use of the store tries again and raises StoreUnavailable: what needs no
    database goes on.
    """
    engine = engine_of(url)
    preparation = Preparation(lambda: _make_ready(engine))
    engine.update_execution_options(**{PREPARATION: preparation})
    try:
        try:
            preparation()
        except StoreUnavailable as error:
            LOG.error("%s", error)
        yield Store(
            snapshots=Snapshots(engine),
            plans=Plans(engine),
            runs=Runs(engine),
            outcomes=Outcomes(engine),
            probes=Probes(engine),
            audit=Audit(engine),
            policies=Policies(engine),
            placements=Placements(engine),
            backoffs=BackoffTable(engine),
            guest_hints=GuestHints(engine),
            idempotency_keys=IdempotencyKeys(engine),
            tokens=Tokens(engine),
            agent_heads=AgentHeads(engine),
            retention=Retention(engine),
            probe=Probe(engine),
        )
    finally:
        engine.dispose()


def _make_ready(engine: Engine) -> None:
    make_file(engine)
    schema.ensure(engine)
