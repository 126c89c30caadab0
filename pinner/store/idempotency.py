"""Answers by idempotency key: a repeated request gets the answer of the first one."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Connection, and_, delete, insert, or_, select, update

from pinner.model.errors import StoreUnavailable
from pinner.store.database import tables
from pinner.store.database.engine import Repository, write

ABANDONED = timedelta(minutes=15)
"""So old, a request without an answer was abandoned by a dead server. Samples take at most 5 minutes."""

KEPT = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    fingerprint: str
    """A key with another hash is refused."""
    status: int
    """The HTTP status; 0 while there is no answer."""
    location: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Reservation:
    actor: str
    key: str
    fingerprint: str
    at: datetime


class IdempotencyKeys(Repository):
    def begin(self, request: Reservation) -> StoredAnswer | None:
        """None where the request is the actor's first one with this key. Raises StoreUnavailable."""
        table = tables.idempotency_keys
        actor, key, fingerprint, now = request.actor, request.key, request.fingerprint, request.at
        row = {
            "actor": actor,
            "key": key,
            "fingerprint": fingerprint,
            "at": now,
            "status": 0,
            "location": "",
            "body": b"",
        }
        query = select(table.c.fingerprint, table.c.status, table.c.location, table.c.body, table.c.at)

        attempted = False

        def reserve(connection: Connection) -> StoredAnswer | None:
            nonlocal attempted
            # A time that is far ahead is of a clock that was wrong: such a key would stay for as long as it was wrong.
            connection.execute(delete(table).where(or_(table.c.at < now - KEPT, table.c.at > now + KEPT)))
            connection.execute(delete(table).filter_by(status=0).where(table.c.at < now - ABANDONED))
            stored = connection.execute(query.filter_by(actor=actor, key=key)).one_or_none()
            if stored is not None:
                # An earlier attempt was stored although its answer was lost.
                own = attempted and (stored.fingerprint, stored.status, stored.at) == (fingerprint, 0, now)
                return None if own else StoredAnswer(*stored[:-1])
            connection.execute(insert(table).values(row))
            attempted = True
            return None

        try:
            return write(self._engine, reserve)
        except StoreUnavailable:
            # The request is refused now. If a commit without an answer was stored, a repetition would wait for nothing.
            if attempted:
                with suppress(StoreUnavailable):
                    self.forget(request)
            raise

    def end(self, request: Reservation, answer: StoredAnswer) -> None:
        values = {"status": answer.status, "location": answer.location, "body": answer.body}
        answered = update(tables.idempotency_keys).where(_reserved(request)).values(values)
        write(self._engine, lambda connection: connection.execute(answered))

    def forget(self, request: Reservation) -> None:
        """After a refusal: a repetition is a new attempt."""
        freed = delete(tables.idempotency_keys).where(_reserved(request))
        write(self._engine, lambda connection: connection.execute(freed))


def _reserved(request: Reservation) -> ColumnElement[bool]:
    columns = tables.idempotency_keys.c
    same = (columns.actor == request.actor, columns.key == request.key, columns.fingerprint == request.fingerprint)
    return and_(*same, columns.at == request.at, columns.status == 0)
