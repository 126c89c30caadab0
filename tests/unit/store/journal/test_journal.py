"""The agent's journal: runs and entries, the lock of the host, and interrupted runs."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import event
from support.values import NOON, cpus, make_entries, make_run

from pinner.model.change import Target
from pinner.model.errors import HostBusy, NotFound, StoreUnavailable
from pinner.store.journal.journal import MAX_NOTES, StoredJournal


@pytest.fixture
def journal(tmp_path):
    with closing(StoredJournal(tmp_path / "agent")) as journal:
        yield journal


def ended(run, state="applied"):
    return replace(run, state=state, ended_at=NOON + timedelta(seconds=3))


def test_a_run_from_begin_to_end(journal, tmp_path):
    run, entries = make_run(), make_entries()
    journal.begin(run)
    journal.intend(*entries)
    assert (journal.run(run.id), journal.entries(run.id)) == (run, entries)
    done = [replace(entry, state="done") for entry in entries]
    for entry in done:
        journal.note(entry)
    assert journal.entries(run.id) == tuple(done)
    journal.end(ended(run))
    with closing(StoredJournal(tmp_path / "agent")) as again:
        assert again.run(run.id) == ended(run)
        assert again.entries(run.id) == tuple(done)


def test_an_unknown_run(journal):
    with pytest.raises(NotFound):
        journal.run("nope")
    assert journal.entries("nope") == ()


def test_an_apply_costs_few_commits(journal):
    commits = []
    event.listen(journal._engine, "commit", lambda connection: commits.append(1))
    run, entries = make_run(), make_entries(count=MAX_NOTES - 1)
    journal.begin(run)
    journal.intend(*entries)
    begun = len(commits)
    for entry in entries:
        journal.note(replace(entry, state="done"))
    assert len(commits) == begun
    journal.end(ended(run))
    assert len(commits) == begun + 1


def test_intend_writes_at_once_and_also_writes_waiting_notes(journal, tmp_path):
    run, entries = make_run(), make_entries()
    journal.begin(run)
    journal.intend(*entries)
    first = replace(entries[0], state="done")
    journal.note(first)
    second = replace(entries[1], found=entries[2].change.before)
    with closing(StoredJournal(tmp_path / "agent")) as other:
        assert other.entries(run.id) == entries
        journal.intend(second)
        assert other.entries(run.id) == (first, second, entries[2])
    journal.end(ended(run))


def test_the_error_of_a_second_run_names_the_first_run(journal, tmp_path):
    """The second run is begun in the same journal, and in another journal of the same process."""
    journal.begin(make_run("run-1"))
    with closing(StoredJournal(tmp_path / "agent")) as other:
        for each in (journal, other):
            with pytest.raises(HostBusy, match="run run-1 is working on host") as caught:
                each.begin(make_run("run-2"))
            assert caught.value.details == {"host": "h1", "run": "run-1"}
            with pytest.raises(NotFound):
                each.run("run-2")
        assert other.run("run-1").state == "running"
        journal.end(ended(make_run("run-1")))
        other.begin(make_run("run-3"))
        other.end(ended(make_run("run-3")))


def test_one_of_several_threads_that_begin_at_the_same_time_gets_the_host(tmp_path):
    journals = [StoredJournal(tmp_path / "agent") for _ in range(6)]
    won, refused, ready = [], [], threading.Barrier(6)

    def race(n):
        ready.wait()
        try:
            journals[n].begin(make_run(f"run-{n}"))
            won.append(f"run-{n}")
        except HostBusy as error:
            refused.append(error.details["run"])

    threads = [threading.Thread(target=race, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert refused == won * 5
    for each in journals:
        each.end(ended(make_run(won[0])))
        each.close()


HOLDER = """
import sys, time
from pathlib import Path
from support.values import make_entries, make_run
from pinner.store.journal.journal import StoredJournal
journal = StoredJournal(Path(sys.argv[1]))
journal.begin(make_run("run-dead"))
journal.intend(*make_entries("run-dead"))
print("begun", flush=True)
time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that has begun a run."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "agent")], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert process.stdout.readline().strip() == "begun"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_killed_process_releases_the_host_and_its_run_stays_open(journal, holder):
    with pytest.raises(HostBusy, match="run-dead"):
        journal.begin(make_run("run-2"))
    assert journal.interrupted() is None, "its process is still running"
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with pytest.raises(HostBusy, match="run-dead"):
        journal.begin(make_run("run-2"))
    assert journal.interrupted() == make_run("run-dead")
    assert journal.entries("run-dead") == make_entries("run-dead")
    journal.end(ended(make_run("run-dead"), "undone"))
    assert journal.interrupted() is None
    journal.begin(make_run("run-2"))
    journal.end(ended(make_run("run-2")))


def test_only_one_caller_at_a_time_gets_an_interrupted_run(journal, holder, tmp_path):
    holder.kill()
    holder.wait()
    with closing(StoredJournal(tmp_path / "agent")) as other:
        found = journal.interrupted()
        assert other.interrupted() is None
        with pytest.raises(HostBusy, match="run-dead"):
            other.begin(make_run("run-2"))
        journal.leave(found)
        assert other.interrupted() == found
        journal.leave(found)
        assert journal.interrupted() is None, "leave has no effect on a lock that another journal has"
        other.leave(found)


def test_a_run_stays_open_if_its_end_cannot_be_written(journal, tmp_path, monkeypatch):
    run = make_run()
    journal.begin(run)
    journal.intend(*make_entries())

    def full(*_, **__):
        raise StoreUnavailable("journal.sqlite", "database or disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(journal._runs, "end", full)
        with pytest.raises(StoreUnavailable, match="disk is full"):
            journal.end(ended(run))
    with closing(StoredJournal(tmp_path / "agent")) as other:
        assert other.interrupted() is None, "the journal still has the lock, so that the changes can be undone"
        journal.leave(run)
        assert other.interrupted() == run
        other.leave(run)


def test_placed_returns_every_mask_that_a_process_may_have(journal):
    run = make_run()
    states = ("done", "done", "intent", "stuck", "undone", "failed", "gone")
    entries = make_entries(count=len(states))
    guest = replace(entries[1].change, target=Target("vcpu", "uuid", 0, "g1"), after=cpus("2"))
    entries = (entries[0], replace(entries[1], change=guest), *entries[2:])
    journal.begin(run)
    journal.intend(*entries)
    for entry, state in zip(entries, states, strict=True):
        journal.note(replace(entry, state=state))
    journal.end(ended(run))
    assert journal.placed() == (cpus("1"), cpus("3"), cpus("4"))
    for entry in entries:
        journal.intend(replace(entry, state="undone"))
    assert journal.placed() == ()


def test_the_lock_is_released_if_the_run_cannot_be_stored(journal, tmp_path, monkeypatch):
    monkeypatch.setattr("pinner.store.database.engine.BUSY_SECONDS", 0.05)
    journal.close()
    with closing(StoredJournal(tmp_path / "agent")) as other:
        with closing(sqlite3.connect(tmp_path / "agent/journal.sqlite")) as raw:
            raw.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreUnavailable, match="locked"):
                journal.begin(make_run("run-1"))
        other.begin(make_run("run-2"))
        other.end(ended(make_run("run-2")))


def test_a_released_lock_does_not_overwrite_the_lock_of_the_next_run(journal):
    """As soon as the lock is free, another thread may take it. The fields that this thread sets must stay."""
    journal.begin(make_run("run-1"))
    journal.intend(*make_entries("run-1"))
    ours = journal._lock

    class LockTakenAtOnce:
        def close(self):
            ours.close()
            assert journal._try_lock()

    journal._lock = LockTakenAtOnce()
    journal.end(replace(make_run("run-1"), state="applied", ended_at=NOON))
    assert journal._lock is not None, "the lock of the next run was lost"
    journal._unlock()
