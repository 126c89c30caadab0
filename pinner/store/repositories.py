import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

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
    """Each part is made of the engine alone."""

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
    """With the newest schema. Raises Invalid. While the database cannot be used, each use tries again."""
    engine = engine_of(url)
    preparation = Preparation(lambda: _make_ready(engine))
    engine.update_execution_options(**{PREPARATION: preparation})
    try:
        try:
            preparation()
        except StoreUnavailable as error:
            LOG.error("%s", error)
        yield Store(*(part.type(engine) for part in fields(Store)))  # type: ignore[operator]
    finally:
        engine.dispose()


def _make_ready(engine: Engine) -> None:
    make_file(engine)
    schema.ensure(engine)
