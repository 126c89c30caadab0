"""The agent's chain of audit records in its journal, and the signed heads in the central database."""

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import Connection, Select, delete, func, insert, inspect, select

from pinner.codec import utc_text
from pinner.model.errors import Invalid
from pinner.model.run.agent_audit import AgentAction, AgentEvent, AgentRecord, ChainHead, SignedHead
from pinner.store.audit.chain import START, fields_of, link
from pinner.store.database import tables
from pinner.store.database.engine import Repository, reading, write

_TABLE = tables.agent_chain
_COLUMNS = [_TABLE.c[name] for name in AgentRecord.__dataclass_fields__]


class AgentChain(Repository):
    """Several threads and processes may append to it."""

    def append(self, *events: AgentEvent) -> None:
        write(self._engine, lambda connection: append_events(connection, events))

    def append_new(self, event: AgentEvent) -> None:
        query = select(_TABLE.c.target, _TABLE.c.after).where(_TABLE.c.action == event.action.value)

        def store(connection: Connection) -> None:
            last = connection.execute(query.order_by(_TABLE.c.seq.desc()).limit(1)).one_or_none()
            if last is None or tuple(last) != (event.target, event.after):
                append_events(connection, [event])

        write(self._engine, store)

    def heads(self) -> tuple[ChainHead, ChainHead]:
        query = select(_TABLE.c.target, _TABLE.c.after).where(_TABLE.c.action == AgentAction.CENTRE_HEAD.value)
        with reading(self._engine) as connection:
            centre = connection.execute(query.order_by(_TABLE.c.seq.desc()).limit(1)).one_or_none()
            return _head(connection), START if centre is None else ChainHead(int(centre.target), centre.after)

    def records(self, after: int, limit: int) -> tuple[AgentRecord, ...]:
        query = select(*_COLUMNS).where(_TABLE.c.seq > after).order_by(_TABLE.c.seq).limit(limit)
        with reading(self._engine) as connection:
            return tuple(AgentRecord(*row) for row in connection.execute(query))

    def old(self, before: datetime, now: datetime) -> ChainHead | None:
        """The last record that ``cut`` may remove of those before a moment. They end before the first one from the
        moment to now: a later time is of a clock that was ahead."""
        is_young = _TABLE.c.at.between(utc_text(before), utc_text(now))
        young = select(func.min(_TABLE.c.seq)).where(is_young)
        old = select(func.max(_TABLE.c.seq)).where(_TABLE.c.at < utc_text(before))
        with reading(self._engine) as connection:
            first = connection.execute(young).scalar()
            last = connection.execute(old if first is None else old.where(_TABLE.c.seq < first)).scalar()
            through = 0 if last is None else last
            row = connection.execute(_first_kept(through)).one_or_none()
            oldest = connection.execute(select(func.min(_TABLE.c.seq))).scalar()
        return ChainHead(row.seq - 1, row.previous) if row and row.seq != oldest else None

    def cut(self, last: ChainHead, at: datetime) -> None:
        """Remove the records up to ``last``, which is of ``old`` and was exported before. Raises Invalid where the
        chain does not have it."""
        cut = AgentEvent(at, "", AgentAction.CHAIN_CUT, str(last.seq), "", last.hash, "cut", "pinner", "")

        def remove(connection: Connection) -> None:
            if connection.execute(select(_TABLE.c.hash).filter_by(seq=last.seq)).scalar() != last.hash:
                raise Invalid("last", f"{last.seq} {last.hash}", "a record of the chain")
            append_events(connection, [cut])
            connection.execute(delete(_TABLE).where(_TABLE.c.seq <= last.seq))

        write(self._engine, remove)


def _first_kept(through: int) -> Select[tuple[int, str]]:
    """The last but one record of the centre's head up to ``through``: the verification takes what is between the two
    for old, too."""
    is_start = (_TABLE.c.action == AgentAction.CENTRE_HEAD.value) & (_TABLE.c.seq <= through)
    return select(_TABLE.c.seq, _TABLE.c.previous).where(is_start).order_by(_TABLE.c.seq.desc()).offset(1).limit(1)


def append_events(connection: Connection, events: Iterable[AgentEvent]) -> None:
    """Within the caller's transaction."""
    if rows := [fields_of(event) for event in events]:
        connection.execute(insert(_TABLE), link(_head(connection), rows))


def _head(connection: Connection) -> ChainHead:
    last = connection.execute(select(_TABLE.c.seq, _TABLE.c.hash).order_by(_TABLE.c.seq.desc()).limit(1)).one_or_none()
    return ChainHead(last.seq, last.hash) if last else START


_HEADS = tables.agent_heads
_FIELDS = list(SignedHead.__dataclass_fields__)


class AgentHeads(Repository):
    def add(self, head: SignedHead) -> None:
        write(self._engine, lambda connection: add_head(connection, head))

    def of(self, host: str) -> tuple[SignedHead, ...]:
        columns = [_HEADS.c[name] for name in _FIELDS]
        with reading(self._engine) as connection:
            if not inspect(connection).has_table(_HEADS.name):
                return ()  # a manipulation; the centre's records name the heads
            rows = connection.execute(select(*columns).filter_by(host=host).order_by(_HEADS.c.seq))
            return tuple(SignedHead(*row) for row in rows)


def add_head(connection: Connection, head: SignedHead) -> None:
    """Within the caller's transaction, unless it is stored."""
    row = {name: getattr(head, name) for name in _FIELDS}
    same = {name: row[name] for name in ("host", "seq", "hash")}
    if connection.execute(select(_HEADS.c.seq).filter_by(**same)).one_or_none() is None:
        connection.execute(insert(_HEADS).values(row))
