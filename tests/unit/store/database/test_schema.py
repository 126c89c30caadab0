"""The schema, the revision that makes it, and databases that another version of pinner made."""

import json
import subprocess
import sys
import threading

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text
from support.store import migrated
from support.store.database_servers import DATABASES

from pinner.cli.manage import manage
from pinner.model.errors import OtherRevision, StoreUnavailable
from pinner.store.database import schema
from pinner.store.database.engine import connect, reading, writing
from pinner.store.database.tables import metadata
from pinner.store.repositories import open_store

pytestmark = pytest.mark.usefixtures("migrations")
OTHERS = ("0001", "0025", "9.9")
"""The first and the last revision from before the first release, and one of a later release."""


@pytest.fixture(params=DATABASES)
def bare(request, databases, tmp_path):
    """The engine of a database without tables, which no other test uses."""
    made = connect(databases.own(request.param, tmp_path))
    yield made
    made.dispose()


def described(engine):
    """The columns, keys and indices of each table as the database describes them."""
    with engine.connect() as connection:
        seen = inspect(connection)
        return {
            table: {
                read.__name__: json.dumps(read(table), default=str, indent=1)
                for read in (
                    seen.get_columns,
                    seen.get_pk_constraint,
                    seen.get_foreign_keys,
                    seen.get_indexes,
                    seen.get_unique_constraints,
                )
            }
            for table in seen.get_table_names()
            if table != "alembic_version"
        }


@pytest.fixture
def expected(bare, databases, tmp_path):
    """The engine of a database of the same kind with the tables of ``tables``. MariaDB's default is to compare texts by
    their bytes, which is not so in the database ``bare``."""
    (tmp_path / "expected").mkdir()
    made = connect(databases.own(bare.dialect.name, tmp_path / "expected"))
    if bare.dialect.name == "mariadb":
        default = f"ALTER DATABASE {made.url.database} CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
        databases.server("mariadb").execute(default)
    with made.begin() as connection:
        metadata.create_all(connection)
    yield made
    made.dispose()


def test_the_revisions_make_the_tables(bare, expected):
    schema.ensure(bare)
    assert described(bare) == described(expected)


def test_the_tests_make_a_new_database_as_the_migrations_do(tmp_path):
    engine = connect(f"sqlite:///{tmp_path}/bare.sqlite")
    migrated.upgrade(engine)
    assert schema.current(engine) == schema.NEWEST
    engine.dispose()
    assert migrated.dump(tmp_path / "bare.sqlite") == migrated.statements()


def test_newest_is_the_head_of_the_migrations(engine):
    with writing(engine) as connection, schema._config(connection) as config:
        assert ScriptDirectory.from_config(config).get_heads() == [schema.NEWEST]


def test_ensure_twice(bare):
    assert schema.current(bare) == schema.EMPTY
    for _ in range(2):
        schema.ensure(bare)
        assert schema.current(bare) == schema.NEWEST


@pytest.mark.fault(60)
def test_a_migration_that_stops_half_way(bare):
    """A table is in the way. SQLite and PostgreSQL undo the migration. MariaDB cannot: it is named."""
    with bare.begin() as connection:
        connection.execute(text("CREATE TABLE tokens (id INTEGER)"))
    with pytest.raises(StoreUnavailable, match="tokens"):
        schema.ensure(bare)
    if bare.dialect.name == "mariadb":
        for call in (schema.current, schema.ensure, schema.upgrade):
            stopped = rf"from revision base to {schema.NEWEST} stopped half-way.*create the database anew"
            with pytest.raises(StoreUnavailable, match=stopped):
                call(bare)
        with bare.begin() as connection:  # it stopped after its last step, before the mark was deleted
            connection.execute(text("DROP TABLE IF EXISTS alembic_version"))
            connection.execute(text(f"CREATE TABLE alembic_version AS SELECT '{schema.NEWEST}' AS version_num"))
        with pytest.raises(StoreUnavailable, match=stopped):
            schema.ensure(bare)
        return
    assert schema.current(bare) == schema.EMPTY
    with bare.begin() as connection:
        connection.execute(text("DROP TABLE tokens"))
    schema.ensure(bare)
    assert schema.current(bare) == schema.NEWEST


def set_revision(engine, revision):
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :revision"), {"revision": revision})


def test_a_database_of_another_version_is_refused_and_not_changed(bare):
    schema.ensure(bare)
    before = described(bare)
    is_file = bare.dialect.name == "sqlite"
    renew = f"db set-aside {bare.url.database}`" if is_file else "empty database in [database] connection"
    for revision in OTHERS:
        set_revision(bare, revision)
        for call in (schema.ensure, schema.upgrade):
            with pytest.raises(OtherRevision) as refused:
                call(bare)
            message = str(refused.value)
            assert f"its revision is {revision}, and this version of pinner reads {schema.NEWEST}" in message
            for part in (bare.url.database, "`pinner audit export FILE`", renew):
                assert part in message
            assert "\n" not in message
        with pytest.raises(OtherRevision), open_store(bare.url.render_as_string(hide_password=False)):
            pass
        assert (schema.current(bare), described(bare)) == (revision, before)


@pytest.mark.parametrize(
    "command", ["db upgrade", "db purge --yes", "token list", "token create t --role reader", "token revoke t --yes"]
)
def test_a_command_of_an_administrator_refuses_it_in_one_line(tmp_path, capsys, command):
    url = f"sqlite:///{tmp_path}/old.sqlite"
    engine = connect(url)
    schema.ensure(engine)
    set_revision(engine, "0025")
    engine.dispose()
    (tmp_path / "pinner.conf").write_text(f"[database]\nconnection = {url}\n")
    given = ["--config-file", str(tmp_path / "pinner.conf")]
    assert manage.main([*command.split(), *given]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"pinner-manage: error: database {tmp_path}/old.sqlite: its revision is 0025")
    assert manage.main(["db", "current", *given]) == 0
    assert f"revision 0025, newest {schema.NEWEST}" in capsys.readouterr().out
    assert manage.main(["db", "set-aside", "--yes", *given]) == 0
    assert manage.main(["db", "upgrade", *given]) == 0
    assert f"revision {schema.NEWEST}, newest {schema.NEWEST}" in capsys.readouterr().out


def test_alembic_is_not_imported_for_a_current_database(engine):
    code = (
        "import sys; from pinner.store.database import schema; from pinner.store.database.engine import connect;"
        f"schema.ensure(connect({engine.url.render_as_string()!r})); sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_threads_can_upgrade_at_the_same_time(bare):
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
    with reading(bare) as connection:
        assert connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all() == [schema.NEWEST]


def test_processes_can_upgrade_at_the_same_time(tmp_path):
    code = (
        "from pinner.store.database import schema; from pinner.store.database.engine import connect;"
        f"e = connect('sqlite:///{tmp_path}/db'); schema.ensure(e); print(schema.current(e))"
    )
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [one.communicate()[0].strip() for one in both] == [schema.NEWEST] * 2
