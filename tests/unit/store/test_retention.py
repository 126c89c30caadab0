"""What old rows are deleted, on every database, and what an undo keeps."""

import gzip
import json
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text
from support.values import NOON, make_entries, make_plan, make_run, make_snapshot

from pinner.cli import manage
from pinner.model.audit import AuditAction, AuditEvent, Caller, audit_event
from pinner.model.errors import NotFound, StoreUnavailable
from pinner.model.placement import Placement
from pinner.model.request import Request
from pinner.store.audit import Audit
from pinner.store.audit_export import export_audit
from pinner.store.chain import record_hash
from pinner.store.journal import Journal
from pinner.store.retention import purge_plans, purge_runs

pytestmark = pytest.mark.fault(57)
YEAR = NOON + timedelta(days=365)
EXPORT = audit_event(Caller("retention", "daily", ""), YEAR, AuditAction.AUDIT_EXPORT, "h1", "", "")


def event(n, at=NOON):
    return AuditEvent(at, "ann", "cli", AuditAction.RUN_CHANGE, "h1", f"process {n}", "", "", "done", "req-1")


def add_plan(store, number, at=NOON):
    plan = make_plan(f"plan-{number}", store.snapshots.add(make_snapshot(minute=number)))
    store.plans.add(plan, at)
    return plan


def run_ids(store):
    return {run.id for run in store.runs.list(None, 500, "").items}


def test_runs_that_nobody_can_undo_are_deleted(store):
    for number, state in enumerate(("applied", "rolled_back", "undone", "failed", "rolled_back_partly", "running")):
        run = make_run(f"run-{state}", plan=f"plan-{number}", state=state)
        kept = state in ("applied", "rolled_back_partly", "running")
        store.runs.add(run, [replace(each, state="stuck" if kept else "undone") for each in make_entries(run.id)])
    store.runs.add(make_run("run-undo", kind="rollback", undoes="run-rolled_back", state="rolled_back"))
    store.runs.add(make_run("run-young", state="undone", started_at=YEAR))
    asked = []
    assert purge_runs(store.runs._engine, YEAR, lambda run: bool(asked.append(run) or True), dry_run=True) == 4
    assert len(run_ids(store)) == 8
    assert purge_runs(store.runs._engine, YEAR, lambda run: run != "run-applied") == 5
    assert run_ids(store) == {"run-rolled_back_partly", "run-running", "run-young"}
    assert store.runs.entries("run-undone") == ()
    assert {*asked} == {"run-applied", "run-rolled_back_partly"}


def test_the_run_of_a_placement_is_kept_with_its_plan(store):
    plans = [add_plan(store, number) for number in range(3)]
    store.runs.add(make_run("run-0", plan=plans[0].id, state="applied"))
    store.runs.add(make_run("run-1", plan=plans[1].id, state="undone"))
    store.placements.put(Placement("h1", plans[0].id, NOON, Request(), plans[0].roles, (), 0), NOON)
    young = add_plan(store, 3, YEAR)
    assert purge_plans(store.plans._engine, NOON + timedelta(days=1), dry_run=True) == (1, 0)
    assert purge_plans(store.plans._engine, NOON + timedelta(days=1)) == (1, 1)
    assert purge_runs(store.runs._engine, YEAR, lambda _: False) == 1
    assert run_ids(store) == {"run-0"}
    assert purge_plans(store.plans._engine, NOON + timedelta(days=1)) == (1, 1)
    assert store.snapshots.get(store.plans.get(plans[0].id).basis.snapshot)
    assert store.plans.get(young.id)
    with pytest.raises(NotFound):
        store.plans.get(plans[1].id)


def test_more_rows_than_a_batch(store, monkeypatch):
    monkeypatch.setattr("pinner.store.retention.BATCH", 3)
    for number in range(10):
        store.runs.add(make_run(f"run-{number}", state="undone"))
    assert purge_runs(store.runs._engine, YEAR, lambda _: True) == 10
    assert run_ids(store) == set()


def test_exported_audit_records_leave_the_database_and_the_chain_goes_on(engine, tmp_path, monkeypatch):
    monkeypatch.setattr("pinner.store.audit_export.BATCH", 4)
    trail = Audit(engine)
    trail.append(*(event(n) for n in range(10)), event("young", YEAR), event("late entry of an old change"))
    before = trail.list(None, None, None, 50, "").items
    file = export_audit(engine, tmp_path, NOON + timedelta(days=1), EXPORT)
    assert file.name == "audit-1-10.jsonl.gz"
    rows = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    assert [row["seq"] for row in rows] == [*range(1, 11)]
    assert all(record_hash(row) == row["hash"] for row in rows)
    assert [row["previous"] for row in rows] == ["", *(row["hash"] for row in rows[:-1])]
    left = trail.list(None, None, None, 50, "").items
    assert left[1:] == before[:2]
    assert (left[0].action, left[0].subject, left[0].result) == (
        "audit.export",
        file.name,
        f"records to 10: {rows[-1]['hash']}",
    )
    verdict = trail.verify()
    assert (verdict.ok, verdict.records) == (True, 3)
    assert export_audit(engine, tmp_path, NOON + timedelta(days=1), EXPORT) is None
    with pytest.raises(Exception, match="append-only"), engine.begin() as connection:
        connection.execute(text("DELETE FROM audit"))


def test_no_record_is_deleted_if_it_cannot_be_exported(engine, tmp_path):
    Audit(engine).append(event(1))
    with pytest.raises(StoreUnavailable, match="No such file"):
        export_audit(engine, tmp_path / "missing", YEAR, EXPORT)
    assert Audit(engine).verify().records == 1


def test_an_export_that_was_killed_is_completed(engine, tmp_path, monkeypatch):
    Audit(engine).append(event(1), event(2))
    with monkeypatch.context() as killed:
        killed.setattr("pinner.store.audit_export._delete_all_exported", lambda _: None)
        export_audit(engine, tmp_path, YEAR, EXPORT)
    assert Audit(engine).verify().ok
    assert export_audit(engine, tmp_path, NOON, EXPORT) is None
    assert [record.seq for record in Audit(engine).list(None, None, None, 5, "").items] == [3]


def test_the_journal_keeps_a_run_that_can_be_undone(tmp_path):
    journal = Journal(tmp_path)
    for number, state in enumerate(("applied", "applied", "undone")):
        run = make_run(f"run-{number}")
        journal.begin(run)
        done = "done" if state == "applied" else "undone"
        journal.intend(*(replace(each, state=done) for each in make_entries(run.id)))
        journal.end(replace(run, state=state, ended_at=NOON))
    assert journal.purge(YEAR, lambda run: run == "run-0") == 2
    assert journal.run("run-0").state == "applied"
    for gone in ("run-1", "run-2"):
        with pytest.raises(NotFound):
            journal.run(gone)
    journal.close()


def test_the_command(store, database, tmp_path, capsys):
    store.runs.add(make_run("run-old", state="undone"))
    add_plan(store, 1)
    config = tmp_path / "pinner.conf"
    url = store.runs._engine.url.render_as_string(hide_password=False)
    config.write_text(f"[database]\nconnection = {url}\n[retention]\naudit_export = {tmp_path}\n")
    call = ["db", "purge", "--config-file", str(config)]
    assert manage.main([*call, "--dry-run"]) == 0
    assert manage.main([*call, "--runs-days", "\u0663"]) == 2
    assert manage.main(call) == 0
    output = capsys.readouterr().out.splitlines()
    # The clock of these rows is in the future of no machine that runs this test a day later.
    assert output[0].startswith("would delete ")
    assert output[1].startswith("deleted ")
