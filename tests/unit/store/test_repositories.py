"""Snapshots, plans and runs are read as they were stored, and listed in pages."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text
from support.values import NOON, cpus, make_change, make_entries, make_plan, make_run, make_snapshot

from pinner.model.change import ThreadMask
from pinner.model.errors import Invalid, NotFound
from pinner.model.page import MAX_LIMIT, PageRequest
from pinner.store.database import tables
from pinner.store.plans import Plans, Snapshots
from pinner.store.runs.runs import Runs


@pytest.fixture
def snapshots(engine):
    return Snapshots(engine)


@pytest.fixture
def plans(engine):
    return Plans(engine)


@pytest.fixture
def runs(engine):
    return Runs(engine)


def test_equal_snapshots_are_stored_once(engine, snapshots):
    one = make_snapshot()
    first, second, other = snapshots.add(one), snapshots.add(replace(one)), snapshots.add(make_snapshot(minute=1))
    assert first == second != other
    assert snapshots.get(first) == one
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM snapshots")).scalar() == 2


@pytest.mark.parametrize(("kind", "table"), [("snapshot", Snapshots), ("plan", Plans), ("run", Runs)])
def test_an_unknown_id(engine, kind, table):
    with pytest.raises(NotFound, match=f"{kind}: there is no 'nope'"):
        table(engine).get("nope")


@pytest.mark.parametrize("table", [Snapshots, Plans, Runs])
def test_an_id_that_is_not_valid_text(engine, table):
    """Python decodes a byte of the command line that is not UTF-8 to such a character."""
    with pytest.raises(Invalid, match="UTF-8"):
        table(engine).get("run-\udc80")


def test_a_plan_is_read_as_it_was_stored(snapshots, plans):
    plan = make_plan(snapshot=snapshots.add(make_snapshot()), changes=(make_change(threads=3),), blocked="reboot")
    plans.add(plan, NOON)
    plans.add(plan, NOON + timedelta(hours=1))
    assert plans.get(plan.id) == plan
    (summary,) = plans.list(None, PageRequest(50)).items
    assert (summary.id, summary.host, summary.strategy, summary.created_at, summary.changes, summary.blocked) == (
        "plan-1",
        "h1",
        "shared-pool",
        NOON,
        1,
        "reboot",
    )


def test_pages_are_newest_first_and_complete(snapshots, plans):
    basis = snapshots.add(make_snapshot())
    # The times decrease, because pages have the order of insertion, not of time.
    for n in range(7):
        plans.add(make_plan(f"plan-{n}", basis, host=f"h{n % 2}"), NOON - timedelta(minutes=n))
    seen, marker, pages = [], "", 0
    while pages == 0 or marker:
        page = plans.list(None, PageRequest(3, marker))
        seen += [item.id for item in page.items]
        marker, pages = page.next, pages + 1
    assert seen == [f"plan-{n}" for n in reversed(range(7))]
    assert pages == 3
    assert [item.id for item in plans.list("h1", PageRequest(2)).items] == ["plan-5", "plan-3"]
    assert plans.list("h1", PageRequest(2, "plan-3")).items[0].id == "plan-1"
    assert plans.list("elsewhere", PageRequest(2)).items == ()


def test_a_full_last_page_has_no_next_page(runs):
    for n in range(2):
        runs.add(make_run(f"run-{n}"))
    assert runs.list(None, PageRequest(2)).next == ""


@pytest.mark.parametrize("limit", [0, -1, MAX_LIMIT + 1])
def test_a_wrong_limit(runs, limit):
    with pytest.raises(Invalid, match="limit"):
        runs.list(None, PageRequest(limit))


def test_an_unknown_marker(plans, runs):
    for table in (plans, runs):
        with pytest.raises(Invalid, match="marker: 'nope'"):
            table.list(None, PageRequest(marker="nope"))


def test_runs_and_their_entries_are_updated(runs):
    run, entries = make_run(persist=True), make_entries()
    runs.add(run, entries)
    assert (runs.get("run-1"), runs.entries("run-1"), runs.running()) == (run, entries, (run,))
    found = (ThreadMask(999, 8, cpus("0-3")),)
    done = replace(entries[1], state="done", at=NOON + timedelta(seconds=1), error="x", found=found, definition="<c/>")
    later = replace(entries[0], seq=9)
    ended = replace(run, state="applied", ended_at=NOON + timedelta(seconds=2))
    runs.save((done,))
    assert runs.entries("run-1") == (entries[0], done, entries[2])
    assert runs.end(ended, (later,))
    assert runs.get("run-1") == ended
    assert not runs.end(replace(ended, state="failed")), "a run ends once"
    assert runs.get("run-1") == ended
    assert runs.entries("run-1") == (entries[0], done, entries[2], later)
    assert runs.running() == ()
    assert runs.entries("nope") == ()


def test_a_time_is_stored_with_microseconds_and_zone(runs):
    run = make_run(started_at=NOON + timedelta(microseconds=1))
    runs.add(run)
    assert runs.get(run.id).started_at == run.started_at
    assert runs.get(run.id).started_at.utcoffset() == timedelta(0)


def test_the_end_of_a_rollback_is_also_the_end_of_the_run_that_it_undoes(runs):
    runs.add(make_run(state="applied"))
    undo = make_run("run-2", kind="rollback", undoes="run-1")
    runs.add(undo)
    runs.end(replace(undo, state="rolled_back_partly", ended_at=NOON))
    assert [run.state for run in runs.list(None, PageRequest(5)).items] == ["rolled_back_partly"] * 2


def test_the_last_applied_run_and_the_last_change(store):
    runs = store.runs
    assert (runs.last_applied("h1"), runs.last_change("h1", ["1"])) == (None, "")
    for number, state in enumerate(("applied", "applied_partly", "undone", "applied"), 1):
        run = make_run(f"run-{number}", state=state)
        done = [replace(each, state="done") for each in make_entries(run.id)]
        runs.add(run, [] if number == 4 else done)
    owner = make_entries("run-1")[0].change.target.owner
    assert runs.last_applied("h1")[1].id == "run-4", "it found the host as planned"
    assert runs.last_change("h1", [owner, "other"]) == "run-3"
    assert runs.last_change("h2", [owner]) == runs.last_change("h1", ["other"]) == ""
    runs.add(make_run("run-5", kind="rollback", undoes="run-1", state="rolled_back"))
    assert runs.last_applied("h1")[1].id == "run-2", "the changes that run 4 found made may be undone"
    assert [run.id for run in runs.in_effect()] == ["run-2", "run-1"]
    probed = make_run("run-6", state="applied", origin="the probe probe-1")
    runs.add(probed, [replace(each, state="done") for each in make_entries("run-6")])
    assert runs.last_applied("h1")[1].id == "run-2", "a probe undoes its runs"


@pytest.mark.fault(59)
def test_a_rollback_of_all_runs_of_a_host_leaves_the_runs_of_other_hosts(engine):
    """The central database has the runs of every host."""
    runs = Runs(engine)
    for host in ("h1", "h2"):
        run = make_run(f"run-{host}", host)
        runs.add(run, [replace(each, state="done") for each in make_entries(run.id, count=2)])
        runs.end(replace(run, state="applied", ended_at=NOON))
    undo = make_run("all", "h1", kind="rollback", plan="")
    runs.add(undo, [replace(each, state="undone") for each in make_entries("all", count=2)])
    runs.end(replace(undo, state="rolled_back", ended_at=NOON))
    assert [runs.get(f"run-{host}").state for host in ("h1", "h2")] == ["rolled_back", "applied"]
    states = [[each.state for each in runs.entries(f"run-{host}")] for host in ("h1", "h2")]
    assert states == [["undone"] * 2, ["done"] * 2]


@pytest.mark.fault(58)
def test_the_end_of_a_rollback_of_all_runs_is_stored_beside_a_damaged_record(engine):
    runs = Runs(engine)
    run = make_run("run-1")
    runs.add(run, [replace(each, state="done") for each in make_entries(run.id, count=3)])
    runs.end(replace(run, state="applied", ended_at=NOON))
    with engine.begin() as connection:
        damaged = tables.entries.update().filter_by(run="run-1", seq=2).values(change='{"kind":')
        connection.execute(damaged)
    undo = make_run("all", kind="rollback", plan="")
    runs.add(undo, [replace(each, state="undone") for each in make_entries("all", count=3) if each.seq != 2])
    runs.end(replace(undo, state="rolled_back_partly", ended_at=NOON))
    assert [runs.get(name).state for name in ("run-1", "all")] == ["rolled_back_partly"] * 2
    entries, damaged = runs.readable_entries("run-1")
    assert [each.state for each in entries] == ["undone"] * 2
    assert [(each.run, each.seq, each.kind) for each in damaged] == [("run-1", 2, "process")]
