import subprocess
import sys

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text
from support.values import NOON, make_entries, make_run

from pinner import codec
from pinner.model.errors import Invalid, StoreUnavailable
from pinner.store import schema
from pinner.store.engine import connect, reading, writing
from pinner.store.runs import Runs
from pinner.store.tables import metadata, utc_text


@pytest.fixture
def bare(tmp_path):
    made = connect(f"sqlite:///{tmp_path}/bare.sqlite")
    yield made
    made.dispose()


def test_metadata_and_migrations_agree(engine):
    with reading(engine) as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_newest_is_the_head_of_the_migrations(engine):
    with writing(engine) as connection, schema._config(connection, "head") as config:
        assert ScriptDirectory.from_config(config).get_heads() == [schema.NEWEST]


def test_up_and_down(bare):
    assert schema.current(bare) == schema.EMPTY
    schema.upgrade(bare)
    assert schema.current(bare) == schema.NEWEST
    schema.downgrade(bare, "base")
    assert schema.current(bare) == schema.EMPTY
    with reading(bare) as connection:
        assert inspect(connection).get_table_names() == ["alembic_version"]
    schema.upgrade(bare, "0001")
    assert schema.current(bare) == "0001"


def test_what_is_older_than_moved_memory_still_reads(bare):
    schema.upgrade(bare, "0001")
    run, (entry,) = make_run(), make_entries(count=1)
    with writing(bare) as connection:
        connection.execute(
            text(
                "INSERT INTO runs (id, kind, host, plan, actor, origin, state, started_at, persist, undoes, error) "
                "VALUES ('run-1', 'apply', 'h1', 'plan-1', 'ann', 'cli', 'running', :at, 0, '', '')"
            ),
            {"at": utc_text(NOON)},
        )
        connection.execute(
            text("INSERT INTO entries VALUES ('run-1', 1, :change, 'intent', :at, '', '[]', '')"),
            {"change": codec.dump(entry.change).decode(), "at": utc_text(NOON)},
        )
    schema.ensure(bare)
    assert (Runs(bare).get("run-1"), Runs(bare).entries("run-1")) == (run, (entry,))
    schema.downgrade(bare, "0001")
    schema.ensure(bare)
    assert Runs(bare).entries("run-1") == (entry,)


def test_ensure_twice(bare):
    schema.ensure(bare)
    schema.ensure(bare)
    assert schema.current(bare) == schema.NEWEST


@pytest.mark.parametrize("call", [schema.ensure, schema.upgrade, lambda engine: schema.downgrade(engine, "base")])
def test_a_newer_schema_is_left_alone(engine, call):
    with writing(engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreUnavailable, match=r"9999 was made by a newer pinner; this one knows 0005"):
        call(engine)
    assert schema.current(engine) == "9999"


@pytest.mark.parametrize("revision", ["nonsense", "0001:0001", ""])
@pytest.mark.parametrize("call", [schema.upgrade, schema.downgrade])
def test_an_unknown_revision(engine, call, revision):
    with pytest.raises(Invalid, match="revision"):
        call(engine, revision)
    assert schema.current(engine) == schema.NEWEST


def test_a_current_database_needs_no_alembic(engine):
    code = (
        "import sys; from pinner.store import schema; from pinner.store.engine import connect;"
        f"schema.ensure(connect({engine.url.render_as_string()!r})); sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_processes_that_upgrade_at_once(tmp_path):
    code = (
        "from pinner.store import schema; from pinner.store.engine import connect;"
        f"e = connect('sqlite:///{tmp_path}/db'); schema.ensure(e); print(schema.current(e))"
    )
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [one.communicate()[0].strip() for one in both] == [schema.NEWEST] * 2
