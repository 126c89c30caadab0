"""The schema, its migrations, and databases that earlier versions of pinner wrote."""

import json
import sqlite3
import subprocess
import sys
import zlib
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import event, inspect, text
from support import migrated
from support.values import NOON, make_entries, make_run

from pinner import codec
from pinner.model.audit import AuditAction, AuditEvent
from pinner.model.errors import Invalid, StoreUnavailable
from pinner.model.event import GuestHint
from pinner.model.page import PageRequest
from pinner.store import schema
from pinner.store.engine import connect, reading, writing
from pinner.store.guest_hints import GuestHints
from pinner.store.repositories import open_store
from pinner.store.runs import Runs
from pinner.store.tables import metadata, utc_text

pytestmark = pytest.mark.usefixtures("migrations")
EVENT = AuditEvent(NOON, "ann", "cli", AuditAction.GUEST_EVENT, "h1", "guest g", "", "", "known", "req-1")


@pytest.fixture
def bare(tmp_path):
    engine = connect(f"sqlite:///{tmp_path}/bare.sqlite")
    yield engine
    engine.dispose()


def test_metadata_and_migrations_agree(engine):
    with reading(engine) as connection:
        differences = compare_metadata(MigrationContext.configure(connection), metadata)
    # alembic compares an index that SQLAlchemy creates on SQLite alone.
    expected = [] if engine.dialect.name == "sqlite" else ["masks_in_force", "masks_of_processes", "names_of_processes"]
    assert sorted(getattr(each[1], "name", each) for each in differences) == expected


def test_the_tests_make_a_new_database_as_the_migrations_do(bare, tmp_path):
    migrated.upgrade(bare)
    assert schema.current(bare) == schema.NEWEST
    assert migrated.dump(tmp_path / "bare.sqlite") == migrated.statements()


def test_newest_is_the_head_of_the_migrations(engine):
    with writing(engine) as connection, schema._config(connection, "head") as config:
        assert ScriptDirectory.from_config(config).get_heads() == [schema.NEWEST]


def test_upgrade_and_downgrade(bare):
    assert schema.current(bare) == schema.EMPTY
    schema.upgrade(bare)
    assert schema.current(bare) == schema.NEWEST
    schema.downgrade(bare, "base")
    assert schema.current(bare) == schema.EMPTY
    with reading(bare) as connection:
        assert inspect(connection).get_table_names() == ["alembic_version"]
    schema.upgrade(bare, "0001")
    assert schema.current(bare) == "0001"


def test_runs_from_before_the_migration_of_memory_are_readable(bare):
    schema.upgrade(bare, "0001")
    run, (entry,) = make_run(), make_entries(count=1)
    change = codec.plain(entry.change) | {"states": ["", ""]}
    del change["kind"]
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
            {"change": json.dumps(change), "at": utc_text(NOON)},
        )
    schema.ensure(bare)
    assert (Runs(bare).get("run-1"), Runs(bare).entries("run-1")) == (run, (entry,))
    schema.downgrade(bare, "0001")
    schema.ensure(bare)
    assert Runs(bare).entries("run-1") == (entry,)


REVISION_0005 = Path(__file__).with_name("revision_0005.sql")
"""A dump of a database that the last version of pinner with revision 0005 wrote: one host with two guests, a plan, a
policy, a placement, a guest hint, and a run that changed a process, an emulator, a vhost thread and memory."""
GUEST = "00000000-0000-4000-8000-000000000001"
KINDS = ["process", "process", "emulator", "vhost", "vcpu", "vcpu"]


@pytest.fixture
def old(tmp_path):
    file = tmp_path / "old.sqlite"
    with closing(sqlite3.connect(file)) as raw:
        raw.executescript(REVISION_0005.read_text())
    engine = connect(f"sqlite:///{file}")
    yield engine
    engine.dispose()


@pytest.fixture
def upgraded(old):
    with open_store(old.url.render_as_string()) as store:
        yield store


def rows(engine, table, columns="*"):
    with reading(engine) as connection:
        return [tuple(row) for row in connection.execute(text(f"SELECT {columns} FROM {table}"))]


def unread(stored, read, path=""):
    """Paths of the fields that are stored, but are not part of the value that was read."""
    if isinstance(stored, dict):
        for name, field in stored.items():
            yield from unread(field, read[name], f"{path}.{name}") if name in read else [f"{path}.{name}"]
    elif isinstance(stored, list):
        for number, (one, other) in enumerate(zip(stored, read, strict=True)):
            yield from unread(one, other, f"{path}.{number}")
    elif stored != read:
        yield f"{path}: {stored!r} is read as {read!r}"


def test_an_earlier_plan_is_readable(old, upgraded):
    (summary,) = upgraded.plans.list("h1", PageRequest(5)).items
    plan = upgraded.plans.get(summary.id)
    request = plan.request
    assert (request.rebalance, request.excluded_guests, request.excluded_processes) == (True, ("g9",), ("backup",))
    assert plan.rebalance is not None
    assert len(plan.skipped) == 4
    assert [change.target.kind for change in plan.changes] == KINDS
    ((packed,),) = rows(old, "plans", "packed")
    body = zlib.decompress(packed)
    # The objective has replaced the score. Nobody can compute it again for an earlier plan.
    assert list(unread(json.loads(body), codec.plain(plan))) == [".score_before", ".score_after"]
    assert plan.objective.terms == ()


def test_an_earlier_snapshot_is_readable_under_its_id(old, upgraded):
    ((plan,),) = rows(old, "plans", "id")
    snapshot = upgraded.snapshots.get(upgraded.plans.get(plan).basis.snapshot)
    first, second = snapshot.guests
    assert [thread.immovable_reason for thread in first.vhost_threads] == ["guest"]
    assert (first.excluded, second.excluded) == (False, True)
    assert first.nova.extra_specs == {"hw:cpu_policy": "shared", "hold": "narrowed", "exempt": "yes"}
    assert [thread.immovable_reason for thread in snapshot.processes[1].threads] == ["", "restricted"]
    assert snapshot.processes[3].immovable_reason == "pinner"
    ((packed,),) = rows(old, "snapshots", "packed")
    body = zlib.decompress(packed)
    assert list(unread(json.loads(body), codec.plain(snapshot))) == []


def test_an_earlier_policy_and_placement_are_readable(old, upgraded):
    policy = upgraded.policies.get("h1")
    placement, run_seq = upgraded.placements.get("h1")
    assert (policy.mode, policy.request.excluded_processes, policy.request.rebalance) == ("enforce", ("backup",), False)
    assert (placement.request, run_seq) == (policy.request, 1)
    assert sorted(placed.target.kind for placed in placement.placed) == sorted(KINDS)
    for table, value in (("policies", policy), ("placements", placement)):
        ((body,),) = rows(old, table, "body")
        assert list(unread(json.loads(body), codec.plain(value))) == []


def test_entries_hints_and_audit_records_of_an_earlier_version_are_readable(upgraded):
    assert [entry.change.target.kind for entry in upgraded.runs.entries("run-1")] == [*KINDS[:4], "memory"]
    hint = upgraded.guest_hints.of("h1")[GUEST]
    assert (hint.at, hint.nova.instance) == (NOON, "vm-1")
    records = upgraded.audit.list(None, None, None, PageRequest(5)).items
    assert [record.action for record in records] == ["guest.exempt", "run.apply", "policy.set"]
    assert upgraded.audit.verify().ok


def test_a_downgrade_keeps_the_latest_hint_on_a_guest(bare):
    schema.upgrade(bare)
    hints = GuestHints(bare)
    for seconds, host in ((0, "h1"), (5, "h2"), (-5, "h3")):
        hint = GuestHint(GUEST, host, NOON + timedelta(seconds=seconds))
        hints.change(GUEST, host, lambda _, hint=hint: (hint, ""), lambda _: EVENT)
    schema.downgrade(bare, "0019")
    assert rows(bare, "guest_hints", "guest, host") == [(GUEST, "h2")]
    schema.upgrade(bare)
    assert hints.of("h2") == {GUEST: GuestHint(GUEST, "h2", NOON + timedelta(seconds=5))}


def test_a_downgrade_restores_every_earlier_name(old):
    renamed = ("snapshots", "plans", "policies", "entries")
    before = {table: rows(old, table) for table in (*renamed, "standings", "told", "audit")}
    schema.upgrade(old, "0006")
    assert all(rows(old, table) != before[table] for table in renamed)
    assert rows(old, "guest_hints") == before["told"]
    schema.downgrade(old, "0005")
    assert {table: rows(old, table) for table in before} == before


def test_a_journal_of_many_entries_is_upgraded_in_few_statements(old):
    count = 2500
    copy = (
        "INSERT INTO entries SELECT run, seq + 100 * :number, change, state, at, error, found, definition, memory "
        "FROM entries WHERE seq = :seq"
    )
    with writing(old) as connection:
        of_vhost = connection.execute(
            text("SELECT seq FROM entries WHERE json_extract(change, '$.target.kind') = 'helper'")
        ).scalar_one()
        connection.execute(text(copy), [{"number": number, "seq": of_vhost} for number in range(1, count + 1)])
        before = connection.execute(text("SELECT change FROM entries ORDER BY run, seq")).scalars().all()
    statements = []
    event.listen(old, "before_cursor_execute", lambda *call: statements.append(call[2]))
    schema.ensure(old)
    assert sum("entries" in statement for statement in statements) < 40
    kinds = [entry.change.target.kind for entry in Runs(old).entries("run-1")]
    assert kinds == [*KINDS[:4], "memory", *["vhost"] * count]
    schema.downgrade(old, "0005")
    assert [json.loads(change) for (change,) in rows(old, "entries ORDER BY run, seq", "change")] == [
        json.loads(change) for change in before
    ]


def test_ensure_twice(bare):
    schema.ensure(bare)
    schema.ensure(bare)
    assert schema.current(bare) == schema.NEWEST


@pytest.mark.parametrize("call", [schema.ensure, schema.upgrade, lambda engine: schema.downgrade(engine, "base")])
def test_a_newer_schema_is_not_changed(engine, call):
    with writing(engine) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(
        StoreUnavailable, match=rf"9999 was created by a newer pinner; this version knows {schema.NEWEST}"
    ):
        call(engine)
    assert schema.current(engine) == "9999"


@pytest.mark.parametrize("revision", ["nonsense", "0001:0001", ""])
@pytest.mark.parametrize("call", [schema.upgrade, schema.downgrade])
def test_an_unknown_revision(engine, call, revision):
    with pytest.raises(Invalid, match="revision"):
        call(engine, revision)
    assert schema.current(engine) == schema.NEWEST


def test_alembic_is_not_imported_for_a_current_database(engine):
    code = (
        "import sys; from pinner.store import schema; from pinner.store.engine import connect;"
        f"schema.ensure(connect({engine.url.render_as_string()!r})); sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_processes_can_upgrade_at_the_same_time(tmp_path):
    code = (
        "from pinner.store import schema; from pinner.store.engine import connect;"
        f"e = connect('sqlite:///{tmp_path}/db'); schema.ensure(e); print(schema.current(e))"
    )
    both = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [one.communicate()[0].strip() for one in both] == [schema.NEWEST] * 2
