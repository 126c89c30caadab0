"""Answers by idempotency key: a request that a client repeats gets the answer of the first request."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Engine, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from pinner.store import tables
from pinner.store.engine import reading, writing

ABANDONED = timedelta(minutes=15)
"""The age at which a request without an answer counts as abandoned: its server died. Samples take at most 5 minutes."""

KEPT = timedelta(days=1)
"""How long an answer is stored."""


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """The request that first used a key, and its answer."""

    fingerprint: str
    """The hash of the request: a key that comes with another request is refused."""
    status: int
    """The HTTP status; 0 while the request has no answer."""
    location: str
    body: bytes


class IdempotencyKeys:
    """The keys of one database, each within the scope of its actor."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def begin(self, actor: str, key: str, fingerprint: str, now: datetime) -> StoredAnswer | None:
        """Reserve the key for a request; None where the request is the first one with this key."""
        table = tables.idempotency_keys
        with writing(self._engine) as connection:
            connection.execute(delete(table).where(table.c.at < now - KEPT))
            connection.execute(delete(table).filter_by(status=0).where(table.c.at < now - ABANDONED))
        row = {
            "actor": actor,
            "key": key,
            "fingerprint": fingerprint,
            "at": now,
            "status": 0,
            "location": "",
            "body": b"",
        }
        try:
            with writing(self._engine) as connection:
                connection.execute(insert(table).values(row))
        except IntegrityError:
            return self._stored(actor, key)
        return None

    def end(self, actor: str, key: str, answer: StoredAnswer) -> None:
        """Store the answer of a successful request."""
        values = {"status": answer.status, "location": answer.location, "body": answer.body}
        with writing(self._engine) as connection:
            connection.execute(update(tables.idempotency_keys).filter_by(actor=actor, key=key).values(values))

    def forget(self, actor: str, key: str) -> None:
        """Free the key of a request that was refused: a repetition is a new attempt."""
        with writing(self._engine) as connection:
            connection.execute(delete(tables.idempotency_keys).filter_by(actor=actor, key=key))

    def _stored(self, actor: str, key: str) -> StoredAnswer:
        table = tables.idempotency_keys.c
        query = select(table.fingerprint, table.status, table.location, table.body).filter_by(actor=actor, key=key)
        with reading(self._engine) as connection:
            row = connection.execute(query).one_or_none()
        # The first request may have been refused a moment ago: the client repeats once more.
        return StoredAnswer(*row) if row else StoredAnswer("", 0, "", b"")
