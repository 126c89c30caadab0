"""Migrations on PostgreSQL and MariaDB: every revision, two processes at a time, and one that stops half-way."""

import threading

import pytest
from sqlalchemy import text
from support.values import make_plan, make_snapshot

from pinner.model.errors import StoreUnavailable
from pinner.store import schema
from pinner.store.engine import connect, reading
from pinner.store.plans import Plans
from pinner.store.snapshots import Snapshots

REVISIONS = ("0001", "0005", "0008", "0010", "0011", "0012", "0013", "0014", schema.NEWEST)


@pytest.fixture(params=["postgresql", "mariadb"])
def bare(request, databases):
    """The engine of a database without tables, which no other test uses."""
    made = connect(databases.server(request.param).database())
    yield made
    made.dispose()


@pytest.mark.fault(60)
def test_every_revision_up_and_down(bare):
    for revision in REVISIONS:
        schema.upgrade(bare, revision)
        assert schema.current(bare) == revision
    key = Snapshots(bare).add(make_snapshot())
    plan = make_plan(snapshot=key)
    Plans(bare).add(plan, make_snapshot().taken_at)
    schema.downgrade(bare, "0008")
    schema.ensure(bare)
    assert (Snapshots(bare).get(key), Plans(bare).get(plan.id)) == (make_snapshot(), plan)
    schema.downgrade(bare, "base")
    assert schema.current(bare) == schema.EMPTY


def test_two_upgrades_at_the_same_time(bare):
    engines = [connect(bare.url) for _ in range(3)]
    errors = []

    def ensure(engine):
        try:
            schema.ensure(engine)
        except Exception as error:
            errors.append(error)
        finally:
            engine.dispose()

    threads = [threading.Thread(target=ensure, args=(engine,)) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert schema.current(bare) == schema.NEWEST


@pytest.mark.fault(60)
def test_a_migration_that_stops_half_way(bare):
    """A table is in the way of the last step. PostgreSQL undoes the migration. MariaDB cannot: it is named."""
    schema.upgrade(bare, "0008")
    with bare.begin() as connection:
        connection.execute(text("CREATE TABLE audit_chain (id INTEGER)"))
    with pytest.raises(StoreUnavailable, match="audit_chain"):
        schema.ensure(bare)
    if bare.dialect.name == "postgresql":
        assert schema.current(bare) == "0008"
        with bare.begin() as connection:
            connection.execute(text("DROP TABLE audit_chain"))
        schema.ensure(bare)
        assert schema.current(bare) == schema.NEWEST
        return
    for call in (schema.current, schema.ensure, schema.upgrade):
        with pytest.raises(StoreUnavailable, match=r"from revision 0008 to head stopped half-way.*Restore the backup"):
            call(bare)
    with reading(bare) as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalar() == "0010"
