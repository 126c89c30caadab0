"""The audit trail: its chain of hashes, its filters and pages, and what a check finds."""

import multiprocessing
import threading
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from support.examples import examples
from support.store.appender import append_pairs
from support.values import NOON

from pinner.model.errors import Invalid, StoreUnavailable
from pinner.model.page import PageRequest
from pinner.model.run.audit import AuditAction, AuditEvent
from pinner.store.audit.audit import Audit
from pinner.store.audit.chain import record_hash
from pinner.store.retention import Retention


def event(n=0, **other):
    values = {
        "at": NOON + timedelta(seconds=n),
        "actor": "ann",
        "origin": "10.0.0.1",
        "action": AuditAction.RUN_CHANGE,
        "host": "h1",
        "subject": f"process busy ({n})",
        "before": "0-31 (12 threads)",
        "after": "0-3",
        "result": "done",
        "request_id": "req-1",
    }
    return AuditEvent(**(values | other))


@pytest.fixture
def trail(engine):
    audit = Audit(engine)
    audit.append(*(event(n) for n in range(1, 7)))
    return audit


def forge(engine, *statements):
    """Change the table as its owner can. The triggers do not prevent that, but the chain reveals it."""
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("ALTER TABLE audit DISABLE TRIGGER USER"))
        else:
            for verb in ("update", "delete"):
                connection.execute(text(f"DROP TRIGGER audit_refuses_{verb}"))
        for statement in statements:
            connection.execute(text(statement))


def test_records_are_chained(trail):
    records = trail.list(None, None, None, PageRequest(50)).items
    assert [record.seq for record in records] == [6, 5, 4, 3, 2, 1]
    assert [record.previous for record in records] == [record.hash for record in records[1:]] + [""]
    verdict = trail.verify()
    assert (verdict.ok, verdict.records, verdict.broken, verdict.why) == (True, 6, 0, "")
    assert verdict.head == records[0].hash


def test_the_hash_is_computed_over_canonical_json(trail):
    """The value is fixed, because a later version that computes hashes differently would break every stored trail."""
    first = trail.list(None, None, None, PageRequest(50)).items[-1]
    assert first.hash == "184be992ac601e0c3ea75116bad62a28a822bb40fb6dac62f54ca9bd53c8ab8c"


def test_an_empty_trail_is_valid(engine):
    verdict = Audit(engine).verify()
    assert (verdict.ok, verdict.records, verdict.head) == (True, 0, "")


def test_filters_and_pages(trail):
    trail.append(event(9, actor="bob", host="h2"))
    assert [r.seq for r in trail.list("h2", None, None, PageRequest(5)).items] == [7]
    assert [r.seq for r in trail.list(None, "bob", None, PageRequest(5)).items] == [7]
    assert [r.seq for r in trail.list(None, None, NOON + timedelta(seconds=5), PageRequest(5)).items] == [7, 6, 5]
    page = trail.list("h1", "ann", None, PageRequest(4))
    assert ([r.seq for r in page.items], page.next) == ([6, 5, 4, 3], "3")
    assert [r.seq for r in trail.list("h1", "ann", None, PageRequest(4, page.next)).items] == [2, 1]


@pytest.mark.parametrize("marker", ["99", "x", "-1", "²", "9" * 18, "9" * 30, "\udc80"])
def test_an_unknown_marker(trail, marker):
    with pytest.raises(Invalid, match="marker"):
        trail.list(None, None, None, PageRequest(5, marker))


@pytest.mark.parametrize("hours", [14, -14])
def test_a_time_without_an_equivalent_in_utc(trail, hours):
    edge = datetime.min if hours > 0 else datetime.max
    with pytest.raises(Invalid, match="since"):
        trail.list(None, None, edge.replace(tzinfo=timezone(timedelta(hours=hours))), PageRequest(5))


@pytest.mark.fault(37)
@pytest.mark.parametrize("statement", ["UPDATE audit SET actor = 'eve' WHERE seq = 2", "DELETE FROM audit"])
def test_the_database_refuses_to_change_a_record(engine, trail, statement):
    with pytest.raises(DBAPIError, match="append-only"), engine.begin() as connection:
        connection.execute(text(statement))
    assert trail.verify().records == 6


SWAP = (
    "UPDATE audit SET seq = 100 WHERE seq = 3",
    "UPDATE audit SET seq = 3 WHERE seq = 4",
    "UPDATE audit SET seq = 4 WHERE seq = 100",
)


@pytest.mark.fault(37)
@pytest.mark.parametrize(
    ("statements", "broken", "why"),
    [
        (["UPDATE audit SET actor = 'eve' WHERE seq = 3"], 3, "record 3 was changed"),
        (["UPDATE audit SET result = 'undone' WHERE seq = 6"], 6, "record 6 was changed"),
        (["UPDATE audit SET at = 'yesterday' WHERE seq = 2"], 2, "record 2 was changed"),
        (["UPDATE audit SET hash = 'beef' WHERE seq = 4"], 4, "record 4 was changed"),
        (["DELETE FROM audit WHERE seq = 3"], 3, "record 3 is missing"),
        (["DELETE FROM audit WHERE seq = 1"], 1, "record 1 is missing"),
        (SWAP, 3, "record 3 was reordered: it was written as record 4"),
        (
            ["DELETE FROM audit WHERE seq = 3", "UPDATE audit SET seq = seq - 1 WHERE seq > 3"],
            3,
            "record 3 was reordered: it was written as record 4",
        ),
    ],
)
def test_verify_names_the_first_broken_record(engine, trail, statements, broken, why):
    forge(engine, *statements)
    verdict = trail.verify()
    assert (verdict.ok, verdict.broken) == (False, broken)
    assert verdict.why.startswith(why)
    assert verdict.records == broken - 1


def test_verify_names_a_record_with_bytes_instead_of_text(sqlite):
    """Only SQLite stores them in a column of text."""
    trail = Audit(sqlite)
    trail.append(event(1), event(2))
    forge(sqlite, "UPDATE audit SET before = x'00ff' WHERE seq = 2")
    assert trail.verify().why.startswith("record 2 was changed")


def test_sqlite_refuses_to_replace_a_record(sqlite):
    """INSERT OR REPLACE deletes the row without a delete trigger."""
    trail = Audit(sqlite)
    trail.append(event(1))
    with pytest.raises(DBAPIError, match="append-only"), sqlite.begin() as connection:
        connection.execute(text("INSERT OR REPLACE INTO audit SELECT * FROM audit"))


def test_the_databases_refuse_to_empty_the_trail(engine, trail):
    """TRUNCATE of MariaDB has no trigger: it needs the right to drop the table."""
    if engine.dialect.name != "postgresql":
        pytest.skip("SQLite has no TRUNCATE; MariaDB has no trigger for it")
    with pytest.raises(DBAPIError, match="append-only"), engine.begin() as connection:
        connection.execute(text("TRUNCATE audit"))
    assert trail.verify().records == 6


def test_a_replaced_record_with_a_correct_hash_breaks_the_link(engine, trail):
    with engine.connect() as connection:
        row = dict(connection.execute(text("SELECT * FROM audit WHERE seq = 3")).one()._mapping)
    row["actor"] = "eve"
    forge(engine, f"UPDATE audit SET actor = 'eve', hash = '{record_hash(row)}' WHERE seq = 3")
    verdict = trail.verify()
    assert (verdict.ok, verdict.broken) == (False, 4)
    assert "does not follow record 3: one of the two was replaced" in verdict.why


@pytest.mark.fault(37)
def test_the_head_reveals_that_the_last_records_were_deleted(engine, trail):
    """The number of the last record is stored, too. Whoever changes that as well is found by a copy of the head."""
    head = trail.verify().head
    forge(engine, "DELETE FROM audit WHERE seq > 4")
    verdict = trail.verify()
    assert (verdict.ok, verdict.broken) == (False, 5)
    assert verdict.why == "record 5 is missing: the last record was number 6"
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE audit_chain SET seq = 4, hash = '{verdict.head}'"))
    verdict = trail.verify()
    assert verdict.ok
    assert verdict.head != head


WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)


@settings(deadline=None, max_examples=examples(50), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(subject=WORDS, before=WORDS)
def test_any_text_is_stored_unchanged_and_verified(engine, subject, before):
    trail = Audit(engine)
    trail.append(event(subject=subject, before=before))
    (record,) = trail.list(None, None, None, PageRequest(1)).items
    assert (record.subject, record.before) == (subject, before)
    assert trail.verify().ok


def test_threads_and_processes_may_append_at_the_same_time(engine):
    url, times = engine.url.render_as_string(hide_password=False), 15
    spawn = multiprocessing.get_context("spawn")
    workers = [spawn.Process(target=append_pairs, args=(url, f"process {n}", times)) for n in range(2)]
    trail = Audit(engine)
    threads = [threading.Thread(target=append_pairs, args=(url, f"thread {n}", times)) for n in range(3)]
    for worker in [*workers, *threads]:
        worker.start()
    for worker in [*workers, *threads]:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    verdict = trail.verify()
    assert (verdict.ok, verdict.records) == (True, 5 * times * 2)
    records = trail.list(None, None, None, PageRequest(500)).items
    assert all(a.actor == b.actor for a, b in zip(records[::2], records[1::2], strict=True)), "an append was torn"


@pytest.mark.fault(46)
@pytest.mark.parametrize("change", ["DELETE FROM audit_chain", "INSERT INTO audit_chain VALUES (2, 1, '', 0, '')"])
def test_an_end_that_was_deleted_or_forged_is_named(engine, trail, change):
    """Nothing can be appended, so no action is done without its record."""
    with engine.begin() as connection:
        connection.execute(text(change))
    for call in (
        trail.head,
        trail.start,
        lambda: trail.append(event()),
        lambda: Retention(engine).old_records(NOON, NOON),
    ):
        with pytest.raises(StoreUnavailable, match="the end of the trail was deleted or forged; restore a backup"):
            call()
    verdict = trail.verify()
    assert not verdict.ok
    assert "the end of the trail was deleted or forged" in verdict.why
