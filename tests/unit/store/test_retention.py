"""What old rows are deleted, on every database, and what an undo keeps."""

import gzip
import os
import resource
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import text
from support.values import NOON, make_entries, make_plan, make_run, make_snapshot

from pinner.cli.manage import manage
from pinner.codec import utc_text
from pinner.model.errors import HostUnreachable, NotFound, StoreUnavailable
from pinner.model.outcome.outcome import Watch
from pinner.model.page import PageRequest
from pinner.model.plan.plan import Placement
from pinner.model.plan.request import Request
from pinner.model.run.agent_audit import ChainHead, SignedHead, head_text, named_purge, purged_text
from pinner.model.run.audit import AuditAction, AuditEvent, Caller, audit_event
from pinner.service.upkeep.retention import Limits, export_audit
from pinner.store.audit.audit import Audit
from pinner.store.idempotency import Reservation
from pinner.store.journal.journal import StoredJournal
from pinner.store.retention import Retention
from pinner.whole_file import write_durably

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
    return {run.id for run in store.runs.list(None, PageRequest(500)).items}


def test_runs_that_nobody_can_undo_are_deleted(store):
    for number, state in enumerate(("applied", "rolled_back", "undone", "failed", "rolled_back_partly", "running")):
        run = make_run(f"run-{state}", plan=f"plan-{number}", state=state)
        kept = state in ("applied", "rolled_back_partly", "running")
        store.runs.add(run, [replace(each, state="stuck" if kept else "undone") for each in make_entries(run.id)])
    store.runs.add(make_run("run-undo", kind="rollback", undoes="run-rolled_back", state="rolled_back"))
    store.runs.add(make_run("run-young", state="undone", started_at=YEAR))
    asked = []
    assert (
        Retention(store.runs._engine).purge_runs(YEAR, lambda run: bool(asked.append(run) or True), dry_run=True) == 4
    )
    assert len(run_ids(store)) == 8
    assert Retention(store.runs._engine).purge_runs(YEAR, lambda run: run != "run-applied") == 5
    assert run_ids(store) == {"run-rolled_back_partly", "run-running", "run-young"}
    assert store.runs.entries("run-undone") == ()
    assert {*asked} == {"run-applied", "run-rolled_back_partly"}


def test_the_run_of_a_placement_is_kept_with_its_plan(store):
    plans = [add_plan(store, number) for number in range(3)]
    store.runs.add(make_run("run-0", plan=plans[0].id, state="applied"))
    store.runs.add(make_run("run-1", plan=plans[1].id, state="undone"))
    store.placements.put(Placement("h1", plans[0].id, NOON, Request(), plans[0].roles, (), 0), NOON, 1)
    young = add_plan(store, 3, YEAR)
    assert Retention(store.plans._engine).purge_plans(NOON + timedelta(days=1), dry_run=True) == (1, 0)
    assert Retention(store.plans._engine).purge_plans(NOON + timedelta(days=1)) == (1, 1)
    assert Retention(store.runs._engine).purge_runs(YEAR, lambda _: False) == 1
    assert run_ids(store) == {"run-0"}
    assert Retention(store.plans._engine).purge_plans(NOON + timedelta(days=1)) == (1, 1)
    assert store.snapshots.get(store.plans.get(plans[0].id).basis.snapshot)
    assert store.plans.get(young.id)
    with pytest.raises(NotFound):
        store.plans.get(plans[1].id)


def test_a_placement_that_no_run_made_keeps_its_plan(store):
    plan = add_plan(store, 0)
    store.placements.put(Placement("h1", plan.id, NOON, Request(), plan.roles, (), 0), NOON, 1)
    assert Retention(store.plans._engine).purge_plans(YEAR) == (0, 0)
    assert store.plans.get(plan.id) == plan


def test_a_dry_run_counts_snapshots_without_a_plan_and_deletes_none(store):
    key = store.snapshots.add(make_snapshot())
    for _ in range(2):
        assert Retention(store.plans._engine).purge_plans(YEAR, dry_run=True) == (0, 1)
    assert store.snapshots.get(key) == make_snapshot()


def test_runs_that_the_undo_of_others_needs_are_kept(store):
    for number in (1, 2, 3):
        store.runs.add(make_run(f"run-{number}", state="undone"))
    asked = []

    def needed(runs):
        asked.extend(runs)
        return {"run-2"}

    assert Retention(store.runs._engine).purge_runs(YEAR, lambda _: False, needed) == 2
    assert (run_ids(store), asked) == ({"run-2"}, ["run-1", "run-2", "run-3"])


def test_the_outcome_of_a_run_is_deleted_with_the_run(store):
    store.runs.add(make_run(state="undone"))
    store.outcomes.put_watch("run-1", Watch("stopped", NOON, "the server stopped"))
    assert store.outcomes.watch("run-1")
    assert Retention(store.runs._engine).purge_runs(YEAR, lambda _: False) == 1
    assert store.outcomes.watch("run-1") is None


def test_more_rows_than_a_batch(store, monkeypatch):
    monkeypatch.setattr("pinner.store.retention.BATCH", 3)
    for number in range(10):
        store.runs.add(make_run(f"run-{number}", state="undone"))
    assert Retention(store.runs._engine).purge_runs(YEAR, lambda _: True) == 10
    assert run_ids(store) == set()


def purge_audit(engine, before):
    """Delete the old records, as after an export."""
    old = Retention(engine).old_records(before, YEAR)
    assert Retention(engine).purge_records(old, replace(EXPORT, after=purged_text(old.last)))
    return old


def test_exported_audit_records_leave_the_database_and_the_chain_goes_on(engine, monkeypatch):
    monkeypatch.setattr("pinner.store.retention.RECORDS_BATCH", 4)
    trail = Audit(engine)
    trail.append(*(event(n) for n in range(10)), event("young", YEAR), event("late entry of an old change"))
    before = trail.list(None, None, None, PageRequest(50)).items
    old = purge_audit(engine, NOON + timedelta(days=1))
    assert (old.first, old.last.seq, old.newest) == (1, 10, 12)
    left = trail.list(None, None, None, PageRequest(50)).items
    assert left[1:] == before[:2]
    assert (left[0].action, named_purge(left[0].after)) == ("audit.export", ChainHead(10, before[2].hash))
    assert trail.start() == old.last
    verdict = trail.verify()
    assert (verdict.ok, verdict.records) == (True, 3)
    assert Retention(engine).old_records(NOON + timedelta(days=1), YEAR) is None
    with pytest.raises(Exception, match="append-only"), engine.begin() as connection:
        connection.execute(text("DELETE FROM audit"))


def test_a_purge_that_was_killed_is_completed(engine, monkeypatch):
    Audit(engine).append(event(1), event(2))
    with monkeypatch.context() as killed:
        killed.setattr("pinner.store.retention.Retention._delete_all_purged", lambda _: None)
        purge_audit(engine, YEAR)
    assert Audit(engine).verify().ok
    assert Retention(engine).old_records(NOON, YEAR) is None
    assert [record.seq for record in Audit(engine).list(None, None, None, PageRequest()).items] == [3]


LIMITS = Limits(timedelta(days=90), timedelta(days=30), timedelta(days=10), Path("/"))


def test_an_export_is_due_once_half_of_the_records_are_old(store, tmp_path):
    limits = replace(LIMITS, audit_folder=tmp_path / "audit")

    def export(at=NOON + timedelta(days=11)):
        return export_audit(store.retention, limits, at, "h1", lambda: iter(["line\n"]))

    store.audit.append(event(1), event(2), *(event(n, NOON + timedelta(days=5)) for n in (3, 4, 5)))
    assert export() is None
    assert export(NOON) is None
    store.audit.append(event(6))
    assert export() is None, "the old records before the first young one count"
    file = export(YEAR + timedelta(days=11))
    assert file.name == "audit-1-6.jsonl.gz"
    assert gzip.decompress(file.read_bytes()) == b"line\n"
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert store.audit.verify().records == 1


def test_no_record_is_deleted_if_it_cannot_be_exported(store, tmp_path):
    store.audit.append(event(1))

    def unreachable():
        raise HostUnreachable("h1", "no agent")
        yield

    for folder, lines, error in (
        (tmp_path / "no" / "folder", lambda: iter([]), StoreUnavailable),
        (tmp_path, unreachable, HostUnreachable),
    ):
        with pytest.raises(error):
            export_audit(store.retention, replace(LIMITS, audit_folder=folder), YEAR, "h1", lines)
    assert store.audit.verify().records == 1
    assert [file.name for file in tmp_path.iterdir() if file.suffix == ".part"] == []


def test_an_export_that_another_server_overtook_deletes_nothing(store, tmp_path):
    """The records that the other one has deleted are missing, or are not in the file."""
    store.audit.append(*(event(n) for n in range(10)), *(event(n, NOON + timedelta(days=1)) for n in range(10)))
    files = []

    def export(folder, days, lines):
        limits = replace(LIMITS, audit_folder=tmp_path / folder)
        return export_audit(store.retention, limits, NOON + timedelta(days=days), "h1", lines)

    def overtaken():
        files.append(export("other", 12, lambda: ["line\n"]))
        yield "line\n"

    assert export("own", 10.5, overtaken) is None
    assert [file.name for file in files] == ["audit-1-20.jsonl.gz"]
    assert store.audit.start().seq == 20
    assert (store.audit.verify().ok, store.audit.verify().records) == (True, 1)
    assert list((tmp_path / "own").glob("*.gz")) == []


def test_one_export_at_a_time_writes_to_a_folder(store, tmp_path):
    """Otherwise two of one name overwrite each other, the complete one too."""
    store.audit.append(event(1), event(2))
    limits = replace(LIMITS, audit_folder=tmp_path)

    def second():
        with pytest.raises(StoreUnavailable, match="another export"):
            export_audit(store.retention, limits, YEAR, "h1", lambda: ["second\n"])
        yield "first\n"

    file = export_audit(store.retention, limits, YEAR, "h1", second)
    assert gzip.decompress(file.read_bytes()) == b"first\n"


def test_a_full_disk_is_left_as_it_was(tmp_path):
    """And what a killed export left is overwritten, whatever the name of the next one."""
    number, kept = resource.getrlimit(resource.RLIMIT_FSIZE), tmp_path / "audit-1-5.jsonl.gz"
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, number[1]))
    try:
        with pytest.raises(StoreUnavailable, match=r"audit-1-5.jsonl.gz: File too large"):
            write_durably(kept, (os.urandom(1000).hex() for _ in range(1000)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, number)
    assert list(tmp_path.iterdir()) == []
    child = f"import os, pathlib, pinner.whole_file as d; d.write_durably(pathlib.Path({str(kept)!r}), "
    subprocess.run([sys.executable, "-c", child + "(os.kill(os.getpid(), 9) for _ in '1'))"], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    write_durably(tmp_path / "audit-1-6.jsonl.gz", ["line\n"])
    assert [file.name for file in tmp_path.iterdir()] == ["audit-1-6.jsonl.gz"]


def test_records_of_a_clock_that_was_ahead_do_not_keep_later_ones(engine):
    ahead = YEAR + timedelta(days=3650)
    trail = Audit(engine)
    trail.append(event(1), event(2, ahead), event(3), event(4, ahead), event(5, YEAR), event(6))
    old = Retention(engine).old_records(YEAR - timedelta(days=10), YEAR)
    assert (old.first, old.last.seq, old.newest) == (1, 3, 6), "from 5 on, all are kept"
    assert Retention(engine).old_records(NOON - timedelta(days=10), NOON) is None, "a clock that is behind"


def test_ended_tokens_are_deleted(store):
    ann = Caller("ann", "here", "req-1")
    made = {
        name: store.tokens.create(name, "reader", "", expires, NOON, ann)[0]
        for name, expires in {"expired": NOON, "valid": YEAR, "endless": None, "revoked": None}.items()
    }
    store.tokens.revoke(made["revoked"].id, NOON, ann)
    assert store.retention.purge_tokens(NOON) == 0
    assert store.retention.purge_tokens(YEAR, dry_run=True) == 2
    assert store.retention.purge_tokens(YEAR) == 2
    assert {token.name for token in store.tokens.list()} == {"valid", "endless"}


def test_old_answers_are_deleted(store):
    store.idempotency_keys.begin(Reservation("ann", "key", "hash", NOON))
    assert store.retention.purge_answers(NOON) == 0
    assert store.retention.purge_answers(YEAR, dry_run=True) == 1
    assert store.retention.purge_answers(YEAR) == 1


def test_heads_that_a_later_one_covers_are_deleted_unless_a_record_names_them(store):
    heads = [
        SignedHead("h1", seq, f"{seq:064x}", 0, "", utc_text(at), "key", "signature")
        for seq, at in ((1, NOON), (2, NOON), (3, YEAR), (4, NOON))
    ]
    for head in heads:
        store.agent_heads.add(head)
    store.audit.append(replace(event(1), action=AuditAction.RUN_END, after=head_text(heads[1])))
    assert store.retention.purge_heads(NOON) == 0
    assert store.retention.purge_heads(YEAR, dry_run=True) == 1
    assert store.retention.purge_heads(YEAR) == 1
    assert [head.seq for head in store.agent_heads.of("h1")] == [2, 3, 4]


def test_the_journal_keeps_a_run_that_can_be_undone(tmp_path):
    journal = StoredJournal(tmp_path)
    for number, state in enumerate(("applied", "applied", "undone")):
        run = make_run(f"run-{number}")
        journal.begin(run)
        done = "done" if state == "applied" else "undone"
        journal.intend(*(replace(each, state=done) for each in make_entries(run.id)))
        journal.end(replace(run, state=state, ended_at=NOON))
    assert journal.purge(YEAR, lambda run: run == "run-0") == 2
    assert journal.run("run-0").state == "applied"
    assert [run.id for run in journal.in_effect()] == ["run-0"], "remove-host still names it"
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
    assert manage.main([*call, "--runs-days", "\u0663", "--yes"]) == 2
    assert manage.main([*call, "--yes"]) == 0
    output = capsys.readouterr().out.splitlines()
    # The clock of these rows is in the future of no machine that runs this test a day later.
    assert output[0].startswith("would delete ")
    assert output[1].startswith("deleted ")
