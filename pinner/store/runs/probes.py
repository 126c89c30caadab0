"""The probes of plans."""

from functools import partial

from sqlalchemy import Connection, Engine, insert, select, update

from pinner import codec
from pinner.model.errors import NotFound, ProbeBusy
from pinner.model.outcome.outcome import Probe
from pinner.model.run.audit import AuditEvent
from pinner.store.audit.audit import append_events
from pinner.store.database import tables
from pinner.store.database.engine import reading
from pinner.store.database.write import write

_COLUMNS = tables.probes.c


class Probes:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def add(self, probe: Probe, event: AuditEvent) -> None:
        """Raises ProbeBusy where the host has a probe that has not ended."""

        def store(connection: Connection) -> None:
            # The end of the audit trail is locked first: of two servers, the second one finds the probe of the first.
            append_events(connection, [event])
            running = select(_COLUMNS.id).filter_by(host=probe.host, state="running")
            if (other := connection.execute(running).scalar()) is not None:
                raise ProbeBusy(probe.host, other)
            connection.execute(insert(tables.probes).values(id=probe.id, host=probe.host, **_values(probe)))

        write(self._engine, store)

    def put(self, probe: Probe) -> None:
        """Does nothing where the probe's end is stored."""
        write(self._engine, partial(_put, probe=probe))

    def end(self, probe: Probe, event: AuditEvent) -> None:
        """Does nothing where an end of the probe is stored."""

        def store(connection: Connection) -> None:
            if _put(connection, probe):
                append_events(connection, [event])

        write(self._engine, store)

    def get(self, probe: str) -> Probe:
        """Raises NotFound."""
        with reading(self._engine) as connection:
            body = connection.execute(select(_COLUMNS.body).filter_by(id=probe)).scalar()
        if body is None:
            raise NotFound("probe", probe)
        return codec.load(Probe, body)

    def running(self, host: str) -> tuple[Probe, ...]:
        query = select(_COLUMNS.body).filter_by(host=host, state="running")
        with reading(self._engine) as connection:
            return tuple(codec.load(Probe, body) for body in connection.execute(query).scalars())


def _put(connection: Connection, probe: Probe) -> bool:
    running = update(tables.probes).filter_by(id=probe.id, state="running")
    return bool(connection.execute(running.values(_values(probe))).rowcount)


def _values(probe: Probe) -> dict[str, object]:
    return {"state": probe.state, "started_at": probe.started_at, "body": codec.dump(probe).decode()}
