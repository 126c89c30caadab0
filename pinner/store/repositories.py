"""The store: one database and the repositories of its nouns."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pinner.store import schema
from pinner.store.agent_heads import AgentHeads
from pinner.store.audit import Audit
from pinner.store.engine import connect
from pinner.store.guest_hints import GuestHints
from pinner.store.idempotency import IdempotencyKeys
from pinner.store.placements import Placements
from pinner.store.plans import Plans
from pinner.store.policies import Policies
from pinner.store.runs import Runs
from pinner.store.snapshots import Snapshots
from pinner.store.tokens import Tokens


@dataclass(frozen=True, slots=True)
class Store:
    """The repositories of one database."""

    snapshots: Snapshots
    plans: Plans
    runs: Runs
    audit: Audit
    policies: Policies
    placements: Placements
    guest_hints: GuestHints
    idempotency_keys: IdempotencyKeys
    tokens: Tokens
    agent_heads: AgentHeads


@contextmanager
def open_store(url: str) -> Iterator[Store]:
    """The store at an SQLAlchemy URL, with its schema upgraded to the newest. Raises Invalid, StoreUnavailable."""
    engine = connect(url)
    try:
        schema.ensure(engine)
        yield Store(
            snapshots=Snapshots(engine),
            plans=Plans(engine),
            runs=Runs(engine),
            audit=Audit(engine),
            policies=Policies(engine),
            placements=Placements(engine),
            guest_hints=GuestHints(engine),
            idempotency_keys=IdempotencyKeys(engine),
            tokens=Tokens(engine),
            agent_heads=AgentHeads(engine),
        )
    finally:
        engine.dispose()
