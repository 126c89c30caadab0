"""The outcomes of runs, and the probes of plans."""

from datetime import datetime
from functools import partial

from sqlalchemy import Connection, and_, insert, or_, select, update

from pinner import codec
from pinner.model.errors import NotFound, ProbeBusy
from pinner.model.outcome.outcome import Probe, RunOutcome, Watch
from pinner.model.run.audit import AuditEvent
from pinner.model.run.journal import Run
from pinner.store.audit.audit import append_events
from pinner.store.database import tables
from pinner.store.database.engine import Repository, reading, write
from pinner.store.runs.runs import RUN

_COLUMNS = tables.outcomes.c
_PROBES = tables.probes.c


class Outcomes(Repository):
    def observed(self, run: str) -> RunOutcome | None:
        return codec.load(RunOutcome, text) if (text := self._text(run, "observed")) else None

    def watch(self, run: str) -> Watch | None:
        return codec.load(Watch, text) if (text := self._text(run, "watch")) else None

    def put_observed(self, outcome: RunOutcome) -> None:
        write(self._engine, lambda connection: _put(connection, outcome.run, observed=_body(outcome)))

    def put_watch(self, run: str, watch: Watch, *events: AuditEvent) -> None:

        def store(connection: Connection) -> None:
            _put(connection, run, watch=_body(watch), watching=watch.state == "watching")
            append_events(connection, events)

        write(self._engine, store)

    def due(self, host: str, since: datetime, also: str = "") -> tuple[Run, ...]:
        """The applies without a stored outcome, and the watched ones without a stored end, oldest first, that changed
        something and ended after ``since``; except the run ``also`` and runs whose stored watch goes on."""
        runs = tables.runs.c
        goes_on = runs.id.in_(select(_COLUMNS.run).filter_by(watching=True))
        changed = select(tables.entries.c.run).where(tables.entries.c.run == runs.id).exists()
        is_open = or_(
            _COLUMNS.run.is_(None), _COLUMNS.observed == "", and_(runs.watch_seconds > 0, _COLUMNS.watch == ""), goes_on
        )
        query = (
            select(*RUN)
            .outerjoin(tables.outcomes, _COLUMNS.run == runs.id)
            .where(
                runs.host == host,
                runs.kind == "apply",
                or_(runs.ended_at >= since, runs.id == also, goes_on),
                changed,
                is_open,
            )
            .order_by(runs.seq)
        )
        with reading(self._engine) as connection:
            return tuple(Run(*row) for row in connection.execute(query))

    def _text(self, run: str, column: str) -> str:
        with reading(self._engine) as connection:
            return connection.execute(select(_COLUMNS[column]).filter_by(run=run)).scalar() or ""


def _body(value: object) -> str:
    return codec.dump(value).decode()


def _put(connection: Connection, run: str, **values: object) -> None:
    if not connection.execute(update(tables.outcomes).filter_by(run=run).values(values)).rowcount:
        connection.execute(insert(tables.outcomes).values(run=run, **values))


class Probes(Repository):
    def add(self, probe: Probe, event: AuditEvent) -> None:
        """Raises ProbeBusy where the host has a probe that has not ended."""

        def store(connection: Connection) -> None:
            # The end of the audit trail is locked first: of two servers, the second one finds the probe of the first.
            append_events(connection, [event])
            running = select(_PROBES.id).filter_by(host=probe.host, state="running")
            if (other := connection.execute(running).scalar()) is not None:
                raise ProbeBusy(probe.host, other)
            connection.execute(insert(tables.probes).values(id=probe.id, host=probe.host, **_probe_values(probe)))

        write(self._engine, store)

    def put(self, probe: Probe) -> None:
        """Does nothing where the probe's end is stored."""
        write(self._engine, partial(_put_probe, probe=probe))

    def end(self, probe: Probe, event: AuditEvent) -> None:
        """Does nothing where an end of the probe is stored."""

        def store(connection: Connection) -> None:
            if _put_probe(connection, probe):
                append_events(connection, [event])

        write(self._engine, store)

    def get(self, probe: str) -> Probe:
        """Raises NotFound."""
        with reading(self._engine) as connection:
            body = connection.execute(select(_PROBES.body).filter_by(id=probe)).scalar()
        if body is None:
            raise NotFound("probe", probe)
        return codec.load(Probe, body)

    def running(self, host: str) -> tuple[Probe, ...]:
        query = select(_PROBES.body).filter_by(host=host, state="running")
        with reading(self._engine) as connection:
            return tuple(codec.load(Probe, body) for body in connection.execute(query).scalars())


def _put_probe(connection: Connection, probe: Probe) -> bool:
    running = update(tables.probes).filter_by(id=probe.id, state="running")
    return bool(connection.execute(running.values(_probe_values(probe))).rowcount)


def _probe_values(probe: Probe) -> dict[str, object]:
    return {"state": probe.state, "started_at": probe.started_at, "body": codec.dump(probe).decode()}
