"""The agent's chain: stored with the journal's state, append-only, and cut only behind a record that says so."""

from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError, IntegrityError
from support.values import NOON, make_entries, make_run

from pinner.model.errors import Invalid, StoreUnavailable
from pinner.model.run.agent_audit import AgentAction, AgentEvent
from pinner.store.audit.agent_chain import AgentChain
from pinner.store.journal.journal import StoredJournal


@pytest.fixture
def journal(tmp_path):
    with closing(StoredJournal(tmp_path / "agent")) as journal:
        yield journal


def summary(journal):
    return [(record.action, record.result) for record in journal.chain.records(0, 100)]


def head_event(number):
    return AgentEvent(NOON, "", AgentAction.CENTRE_HEAD, str(number), "", f"{number:064d}", "reported", "", "")


def test_a_record_is_stored_with_the_state_that_it_describes(journal):
    run, entries = make_run(), make_entries(count=2)
    journal.begin(run)
    assert summary(journal) == [("run.apply", "started")]
    journal.intend(*entries)
    journal.note(replace(entries[0], state="done"))
    assert summary(journal) == [("run.apply", "started")]
    journal.entries(run.id)
    assert summary(journal)[1:] == [("run.change", "done")]
    journal.note(replace(entries[0], state="undone"))
    journal.note(replace(entries[1], state="failed", error="no"))
    journal.end(replace(run, state="undone", ended_at=NOON, error="no"))
    assert summary(journal)[2:] == [("run.change", "undone"), ("run.change", "failed: no"), ("run.end", "undone: no")]


def test_both_notes_of_one_change_are_recorded(journal):
    """The centre may have stored the first one, although both reach the journal in one write."""
    run, (entry,) = make_run(), make_entries(count=1)
    journal.begin(run)
    journal.intend(entry)
    journal.note(replace(entry, state="done"))
    journal.note(replace(entry, state="undone"))
    journal.end(replace(run, state="undone", ended_at=NOON))
    assert [result for action, result in summary(journal) if action == "run.change"] == ["done", "undone"]


def test_no_state_is_stored_without_its_record(journal):
    """The chain cannot be written: the run does not begin."""
    with journal._engine.begin() as connection:
        connection.execute(
            text("CREATE TRIGGER full BEFORE INSERT ON agent_chain BEGIN SELECT RAISE(ABORT, 'full'); END")
        )
    with pytest.raises((IntegrityError, StoreUnavailable), match="full"):
        journal.begin(make_run())
    assert journal._runs.running() == ()


def test_the_recovery_of_a_run_is_recorded(journal):
    run = make_run()
    journal.begin(run)
    journal.leave(run)
    interrupted = journal.interrupted()
    journal.end(replace(interrupted, state="undone", ended_at=NOON, recovered="interrupted; rolled back: 1 undone"))
    found = journal.chain.records(1, 100)
    assert [(each.action, each.actor) for each in found] == [("run.recover", "pinner"), ("run.end", run.actor)]


def test_the_callers_name_is_recorded(journal):
    journal.begin(make_run(peer="pinner (uid 995), pid 12"))
    (record,) = journal.chain.records(0, 100)
    assert (record.actor, record.peer) == (make_run().actor, "pinner (uid 995), pid 12")


@pytest.mark.parametrize("statement", ["UPDATE agent_chain SET actor = 'eve'", "DELETE FROM agent_chain"])
def test_the_database_refuses_to_change_the_chain(engine, statement):
    chain = AgentChain(engine)
    chain.append(head_event(1))
    with pytest.raises(DBAPIError, match="append-only"), engine.begin() as connection:
        connection.execute(text(statement))
    assert len(chain.records(0, 100)) == 1


def test_sqlite_refuses_to_replace_a_record(journal):
    journal.begin(make_run())
    with pytest.raises(DBAPIError, match="append-only"), journal._engine.begin() as connection:
        connection.execute(text("INSERT OR REPLACE INTO agent_chain SELECT * FROM agent_chain"))


@pytest.mark.fault(57)
def test_records_of_a_clock_that_was_ahead_do_not_keep_later_ones(engine):
    chain, day = AgentChain(engine), timedelta(days=1)
    moments = (NOON, NOON + 9000 * day, NOON, NOON, NOON + 9000 * day, NOON + 300 * day, NOON)
    chain.append(*(replace(head_event(number), at=at) for number, at in enumerate(moments, 1)))
    assert chain.old(NOON + 200 * day, NOON + 365 * day).seq == 2, "of the heads 1 to 4, the last two are kept"
    assert chain.old(NOON - 200 * day, NOON) is None, "a clock that is behind"


def test_a_cut_leaves_a_part_that_begins_with_the_last_two_old_heads_of_the_centre(engine):
    chain = AgentChain(engine)
    for number in (5, 7):
        chain.append(head_event(number), head_event(number + 1))
    cut = chain.old(NOON + timedelta(days=1), NOON + timedelta(days=1))
    with pytest.raises(Invalid, match="last"):
        chain.cut(replace(cut, seq=3), NOON)
    chain.cut(cut, NOON)
    records = chain.records(0, 100)
    assert [record.seq for record in records] == [3, 4, 5]
    assert records[0].previous == cut.hash
    assert (records[-1].action, records[-1].target, records[-1].after) == ("chain.cut", "2", cut.hash)
    chain.append(head_event(11))
    assert chain.heads()[0].seq == 6
    with pytest.raises(DBAPIError, match="append-only"), engine.begin() as connection:
        connection.execute(text("DELETE FROM agent_chain WHERE seq = 4"))


def test_the_same_head_is_recorded_once(journal):
    for number in (5, 5, 6, 5):
        journal.chain.append_new(head_event(number))
    assert [record.target for record in journal.chain.records(0, 100)] == ["5", "6", "5"]
    assert journal.chain.heads()[1].seq == 5
