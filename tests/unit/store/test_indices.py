"""No list page and no observation of a host reads a whole table: SQLite's own plans of the queries say so."""

from contextlib import closing

import pytest
from sqlalchemy import event
from support.values import NOON, make_entries, make_plan, make_run, make_snapshot

from pinner.model.page import PageRequest
from pinner.store.audit.audit import Audit
from pinner.store.guest_hints import GuestHints
from pinner.store.journal.journal import StoredJournal
from pinner.store.plans import Plans, Snapshots
from pinner.store.policies import BackoffTable, Policies
from pinner.store.runs.runs import Placements, Runs

pytestmark = pytest.mark.fault(57)


def find_policy(engine):
    with pytest.raises(Exception, match="no policy"):
        Policies(engine).get("h1")


QUERIES = {
    "runs": lambda engine: Runs(engine).list(None, PageRequest()),
    "runs of a host": lambda engine: Runs(engine).list("h1", PageRequest()),
    "runs in a state": lambda engine: Runs(engine).list(None, PageRequest(), state="failed"),
    "failed runs of a host": lambda engine: Runs(engine).list("h1", PageRequest(direction="asc"), state="failed"),
    "next page of runs": lambda engine: Runs(engine).list("h1", PageRequest(marker="run-1")),
    "a run": lambda engine: Runs(engine).get("run-1"),
    "entries of a run": lambda engine: Runs(engine).entries("run-1"),
    "running runs": lambda engine: Runs(engine).running(),
    "the last applied run": lambda engine: Runs(engine).last_applied("h1"),
    "the last change of guests": lambda engine: Runs(engine).last_change("h1", ["uuid", "42"]),
    "changes of a guest": lambda engine: Runs(engine).recorded_changes("h1", "uuid"),
    "plans": lambda engine: Plans(engine).list("h1", PageRequest()),
    "a plan": lambda engine: Plans(engine).get("plan-1"),
    "audit": lambda engine: Audit(engine).list(None, None, None, PageRequest()),
    "audit of a host": lambda engine: Audit(engine).list("h1", None, None, PageRequest()),
    "audit of an actor": lambda engine: Audit(engine).list(None, "ann", None, PageRequest()),
    "audit of an actor on a host": lambda engine: Audit(engine).list("h1", "ann", None, PageRequest()),
    "hints": lambda engine: GuestHints(engine).of("h1"),
    "the backoffs": lambda engine: BackoffTable(engine).of("h1"),
    "the placement": lambda engine: Placements(engine).get("h1"),
    "the policy": find_policy,
}
IN_ORDER = {"runs", "audit"}
"""These lists have no filter: a scan in the order of the primary key ends at the page's limit."""


def plans_of(engine, call):
    """The steps of SQLite's plan of each query that the call makes."""
    queries = []

    def note(_connection, _cursor, statement, values, *_):
        if statement.lstrip().startswith(("SELECT", "WITH")):
            queries.append((statement, values))

    event.listen(engine, "before_cursor_execute", note)
    call()
    event.remove(engine, "before_cursor_execute", note)
    assert queries
    with engine.connect() as connection:
        for statement, values in queries:
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values):
                yield row.detail


@pytest.mark.parametrize("name", QUERIES)
def test_an_observation_and_a_list_page_use_an_index(sqlite, name):
    plan = make_plan(snapshot=Snapshots(sqlite).add(make_snapshot()))
    Plans(sqlite).add(plan, NOON)
    Runs(sqlite).add(make_run(), make_entries())
    steps = list(plans_of(sqlite, lambda: QUERIES[name](sqlite)))
    scans = [step for step in steps if step.startswith("SCAN")]
    if name in IN_ORDER:
        assert not [step for step in steps if "TEMP B-TREE" in step], steps
    else:
        assert not scans, steps
    if name != "changes of a guest":  # only its own changes are sorted
        assert not [step for step in steps if "ORDER BY" in step], steps


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (StoredJournal.placed, "masks_of_processes"),
        (StoredJournal.moved_processes, "names_of_processes"),
        (StoredJournal.allocated, "masks_in_force"),
        (lambda journal: journal.changes_of("uuid"), "entries_of_owner"),
    ],
    ids=["placed", "moved_processes", "allocated", "changes_of"],
)
def test_the_journal_searches_what_is_in_force_in_an_index(tmp_path, query, index):
    with closing(StoredJournal(tmp_path)) as journal:
        steps = list(plans_of(journal._engine, lambda: query(journal)))
    read = [step for step in steps if "entries" in step]
    assert read
    assert all(step.startswith(f"SEARCH entries USING INDEX {index}") for step in read), steps
