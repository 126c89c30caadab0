"""Each host's policy, and the placement that stands there."""

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Engine, Table, insert, select, update

from pinner import codec
from pinner.model.audit import AuditEvent
from pinner.model.errors import NotFound
from pinner.model.placement import Placement
from pinner.model.policy import Policy
from pinner.store import tables
from pinner.store.audit import append_events
from pinner.store.engine import reading, writing


class Policies:
    """The policies and placements of one database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def get(self, host: str) -> Policy:
        """Raises NotFound where the host has none."""
        with reading(self._engine) as connection:
            body = connection.execute(select(tables.policies.c.body).filter_by(host=host)).scalar()
        if body is None:
            raise NotFound("policy of host", host)
        return codec.load(Policy, body, "policy")

    def put(self, host: str, policy: Policy, at: datetime, event: AuditEvent) -> None:
        """Store a host's policy in place of the one it had, and its audit record with it."""
        with writing(self._engine) as connection:
            _replace(connection, tables.policies, host, {"set_at": at, "body": codec.dump(policy).decode()})
            append_events(connection, [event])

    def placement(self, host: str) -> tuple[Placement, datetime] | None:
        """What stands there, and since when that is known; None where nothing does."""
        table = tables.placements.c
        with reading(self._engine) as connection:
            row = connection.execute(select(table.body, table.stored_at).filter_by(host=host)).one_or_none()
        return (codec.load(Placement, row.body, "standing"), row.stored_at) if row else None

    def record_placement(self, placement: Placement, at: datetime) -> None:
        """Store what stands, in place of what stood."""
        values = {"stored_at": at, "body": codec.dump(placement).decode()}
        with writing(self._engine) as connection:
            _replace(connection, tables.placements, placement.host, values)


def _replace(connection: Connection, table: Table, host: str, values: dict[str, Any]) -> None:
    if not connection.execute(update(table).filter_by(host=host).values(values)).rowcount:
        connection.execute(insert(table).values(host=host, **values))
