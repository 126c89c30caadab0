"""The signed heads that the agents reported to the centre."""

from sqlalchemy import Connection, Engine, insert, inspect, select

from pinner.model.run.agent_audit import SignedHead
from pinner.store.database import tables
from pinner.store.database.engine import reading
from pinner.store.database.write import write

_TABLE = tables.agent_heads
_FIELDS = list(SignedHead.__dataclass_fields__)


class AgentHeads:
    """The signed heads in one database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, head: SignedHead) -> None:
        """Store a head, unless it is stored already."""
        write(self._engine, lambda connection: add_head(connection, head))

    def of(self, host: str) -> tuple[SignedHead, ...]:
        """The heads of the host's agent, by their number."""
        columns = [_TABLE.c[name] for name in _FIELDS]
        with reading(self._engine) as connection:
            if not inspect(connection).has_table(_TABLE.name):
                return ()  # a manipulation; the centre's records name the heads
            rows = connection.execute(select(*columns).filter_by(host=host).order_by(_TABLE.c.seq))
            return tuple(SignedHead(*row) for row in rows)


def add_head(connection: Connection, head: SignedHead) -> None:
    """Store a head within the caller's transaction, unless it is stored already."""
    row = {name: getattr(head, name) for name in _FIELDS}
    same = {name: row[name] for name in ("host", "seq", "hash")}
    if connection.execute(select(_TABLE.c.seq).filter_by(**same)).one_or_none() is None:
        connection.execute(insert(_TABLE).values(row))
