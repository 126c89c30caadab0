"""The policy of each host, and its backoffs."""

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import Connection, delete, select

from pinner import codec
from pinner.model.change import TargetKey
from pinner.model.errors import NoPolicy, PreconditionFailed
from pinner.model.policy import Backoff, Backoffs, Expected, Policy, Setback
from pinner.model.run.audit import AuditEvent
from pinner.store.audit.audit import append_events
from pinner.store.database import tables
from pinner.store.database.engine import Repository, put_host_row, reading, write


class Policies(Repository):
    def get(self, host: str) -> Policy:
        """Raises NoPolicy."""
        with reading(self._engine) as connection:
            body = connection.execute(select(tables.policies.c.body).filter_by(host=host)).scalar()
        if body is None:
            raise NoPolicy(host)
        return codec.load(Policy, body, "policy")

    def setback(self, host: str) -> Setback | None:
        """Why pinner set the host's policy to propose; None: it did not."""
        with reading(self._engine) as connection:
            text = connection.execute(select(tables.policies.c.setback).filter_by(host=host)).scalar()
        return codec.load(Setback, text, "setback") if text else None

    def put(
        self,
        host: str,
        policy: Policy,
        at: datetime,
        event: AuditEvent,
        expected: Expected = None,
        setback: Setback | None = None,
    ) -> None:
        """Replaces policy and setback. Raises PreconditionFailed where it has none of the ``expected`` revisions."""
        values = {
            "set_at": at,
            "body": codec.dump(policy).decode(),
            "setback": codec.dump(setback).decode() if setback else "",
        }

        def store(connection: Connection) -> None:
            require_policy(connection, host, expected)
            put_host_row(connection, tables.policies, host, values)
            append_events(connection, [event])

        write(self._engine, store)

    def delete(self, host: str, event: AuditEvent, expected: Expected = None) -> None:
        """Raises NoPolicy, and PreconditionFailed like ``put``."""

        def remove(connection: Connection) -> None:
            require_policy(connection, host, expected)
            if not connection.execute(delete(tables.policies).filter_by(host=host)).rowcount:
                raise NoPolicy(host)
            append_events(connection, [event])

        write(self._engine, remove)


def require_policy(connection: Connection, host: str, expected: Expected) -> None:
    """Raises PreconditionFailed."""
    if expected is None:
        return
    body = connection.execute(select(tables.policies.c.body).filter_by(host=host)).scalar()
    revision = "" if body is None else codec.content_hash(codec.load(Policy, body, "policy"))
    if revision not in expected:
        raise PreconditionFailed(f"policy of host {host}", tuple(expected), revision)


_BACKOFFS = codec.adapter(tuple[tuple[TargetKey, Backoff], ...])


class BackoffTable(Repository):
    def of(self, host: str) -> Backoffs:
        with reading(self._engine) as connection:
            return _of(connection, host)

    def change(self, host: str, change: Callable[[Backoffs], Backoffs], at: datetime) -> Backoffs:

        def store(connection: Connection) -> Backoffs:
            changed = change(_of(connection, host))
            row = {"stored_at": at, "body": _BACKOFFS.dump_json(tuple(changed.items())).decode()}
            put_host_row(connection, tables.backoffs, host, row)
            return changed

        return write(self._engine, store)

    def put(self, host: str, backoffs: Backoffs, at: datetime) -> None:
        self.change(host, lambda _: backoffs, at)


def _of(connection: Connection, host: str) -> Backoffs:
    body = connection.execute(select(tables.backoffs.c.body).filter_by(host=host)).scalar()
    return {} if body is None else dict(_BACKOFFS.validate_json(body))
