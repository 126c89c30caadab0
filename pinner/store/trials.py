"""The kinds of change that policies have probed, with the verdicts."""

from collections.abc import Iterable
from functools import partial

from sqlalchemy import Connection, Engine, delete, insert, select

from pinner import codec
from pinner.model.request import Request
from pinner.model.trial import Trial
from pinner.store import tables
from pinner.store.engine import reading
from pinner.store.write import write

_COLUMNS = tables.trials.c


class Trials:
    """The trials of one database."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def of(self, host: str, request: Request) -> tuple[Trial, ...]:
        """The trials on a host of a request without names, by their kinds."""
        query = select(_COLUMNS.body).filter_by(host=host, request=codec.content_hash(request)).order_by(_COLUMNS.kind)
        with reading(self._engine) as connection:
            return tuple(codec.load(Trial, body) for body in connection.execute(query).scalars())

    def put(self, trials: Iterable[Trial]) -> None:
        """Store trials, which replace the earlier ones of the same kinds."""
        write(self._engine, partial(put_trials, trials=tuple(trials)))


def put_trials(connection: Connection, trials: Iterable[Trial]) -> None:
    """Store trials within a transaction."""
    for each in trials:
        key = {"host": each.host, "request": codec.content_hash(each.request), "kind": each.kind}
        connection.execute(delete(tables.trials).filter_by(**key))
        connection.execute(insert(tables.trials).values(**key, body=codec.dump(each).decode()))
