"""One database with everything that is kept in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pinner.store import schema
from pinner.store.audit import Audit
from pinner.store.engine import connect
from pinner.store.guest_hints import GuestHints
from pinner.store.plans import Plans
from pinner.store.policies import Policies
from pinner.store.runs import Runs
from pinner.store.snapshots import Snapshots


@dataclass(frozen=True, slots=True)
class Store:
    """The repositories of one database."""

    snapshots: Snapshots
    plans: Plans
    runs: Runs
    audit: Audit
    policies: Policies
    guest_hints: GuestHints


@contextmanager
def open_store(url: str) -> Iterator[Store]:
    """The store at an SQLAlchemy URL, its schema brought up to date. Raises Invalid, StoreUnavailable."""
    engine = connect(url)
    try:
        schema.ensure(engine)
        yield Store(Snapshots(engine), Plans(engine), Runs(engine), Audit(engine), Policies(engine), GuestHints(engine))
    finally:
        engine.dispose()
