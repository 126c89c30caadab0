"""The policy of each host."""

from datetime import datetime

from sqlalchemy import Engine, select

from pinner import codec
from pinner.model.audit import AuditEvent
from pinner.model.errors import NoPolicy
from pinner.model.policy import Policy
from pinner.store import tables
from pinner.store.audit import append_events
from pinner.store.engine import reading, writing
from pinner.store.host_row import put_host_row


class Policies:
    """The policies of one database, at most one for each host."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def get(self, host: str) -> Policy:
        """The host's policy. Raises NoPolicy."""
        with reading(self._engine) as connection:
            body = connection.execute(select(tables.policies.c.body).filter_by(host=host)).scalar()
        if body is None:
            raise NoPolicy(host)
        return codec.load(Policy, body, "policy")

    def put(self, host: str, policy: Policy, at: datetime, event: AuditEvent) -> None:
        """Store a host's policy, which replaces its earlier one, and append the audit event in the same transaction."""
        with writing(self._engine) as connection:
            put_host_row(connection, tables.policies, host, {"set_at": at, "body": codec.dump(policy).decode()})
            append_events(connection, [event])
