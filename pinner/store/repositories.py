import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Engine

from pinner.model.errors import StoreUnavailable
from pinner.store.audit.agent_chain import AgentHeads
from pinner.store.audit.audit import Audit
from pinner.store.database import schema
from pinner.store.database.engine import PREPARATION, Preparation, engine_of, make_file
from pinner.store.database.probe import DatabaseProbe
from pinner.store.guest_hints import GuestHints
from pinner.store.idempotency import IdempotencyKeys
from pinner.store.plans import Plans, Snapshots
from pinner.store.policies import BackoffTable, Policies
from pinner.store.retention import Retention
from pinner.store.runs.outcomes import Outcomes, Probes
from pinner.store.runs.runs import Placements, Runs
from pinner.store.tokens import Tokens

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Store:
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
    probe: DatabaseProbe


@contextmanager
def open_store(url: str) -> Iterator[Store]:
    """With the newest schema. Raises Invalid. While the database cannot be used, each use tries again, or raises
    StoreUnavailable."""
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
            probe=DatabaseProbe(engine),
        )
    finally:
        engine.dispose()


def _make_ready(engine: Engine) -> None:
    make_file(engine)
    schema.ensure(engine)
