"""A journal or database file that cannot be used: it is named with its repair, and reading the host goes on."""

import logging
import os
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from sqlalchemy import text
from support.fakes.hosted_agent import HostedAgent
from support.hosts import plain, snapshot
from support.server.access import make_control
from support.server.unix_http import on_unix_socket
from support.values import NOON, cpus, make_entries, make_run

from pinner import conf, wiring
from pinner.api.app import create_app
from pinner.cli.manage import manage
from pinner.model.errors import PinnerError, StoreUnavailable
from pinner.store.database.engine import connect
from pinner.store.journal.journal import StoredJournal
from pinner.store.journal.opening import JournalRetry, LastMasks, UnusableJournal, open_journal, pins_of
from pinner.store.repositories import open_store

pytestmark = pytest.mark.fault(58)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def overwritten(path: Path) -> None:
    """Garbage in the middle: each page but the first."""
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xde\xad\xbe\xef" * (len(content[4096:]) // 4)
    path.write_bytes(content)


def replaced(path: Path) -> None:
    path.write_bytes(b"these are not the bytes of a database" * 200)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


MAIN = "import sys; from pinner.cli.main import main; sys.exit(main())"
DAMAGES = [truncated, overwritten, replaced, empty, folder]


def damage(path: Path, how) -> None:
    for side in (Path(f"{path}-wal"), Path(f"{path}-shm")):
        side.unlink(missing_ok=True)
    how(path)


@pytest.fixture
def journal_file(tmp_path):
    with closing(StoredJournal(tmp_path / "agent")) as journal:
        for number in range(30):
            run = make_run(f"run-{number}")
            journal.begin(run)
            journal.intend(*make_entries(run.id, count=20))
            journal.end(make_run(run.id, state="applied", ended_at=NOON))
    return tmp_path / "agent/journal.sqlite"


@pytest.fixture
def database_file(tmp_path):
    with open_store(f"sqlite:///{tmp_path}/pinner.sqlite") as store:
        for number in range(50):
            store.runs.add(make_run(f"run-{number}", error="x" * 2000))
    return tmp_path / "pinner.sqlite"


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_journal_is_named_and_refuses_every_change(journal_file, how):
    damage(journal_file, how)
    journal = open_journal(journal_file.parent)
    try:
        with pytest.raises(StoreUnavailable) as caught:
            for number in range(30):
                journal.entries(f"run-{number}")
            journal.begin(make_run("run-new"))
        assert str(journal_file) in str(caught.value)
        assert "Repair: " in str(caught.value)
        masks = LastMasks(journal)
        assert {*masks()} <= {cpus("1"), *(cpus(str(n)) for n in range(40))}
    finally:
        journal.close()


def test_the_masks_are_remembered_while_the_journal_cannot_be_read(journal_file):
    with closing(StoredJournal(journal_file.parent)) as journal:
        masks = LastMasks(journal)
        before = masks()
        assert before
        journal._engine.dispose()
        damage(journal_file, replaced)
        with pytest.raises(StoreUnavailable, match=r"set-aside .*journal\.sqlite"):
            journal.placed()
        assert masks() == before


@pytest.mark.parametrize("how", DAMAGES)
def test_reading_the_host_goes_on_with_a_damaged_database(tmp_path, database_file, how, caplog):
    caplog.set_level(logging.CRITICAL)
    damage(database_file, how)
    agent = HostedAgent(tmp_path / "other", snapshot(plain(4, 1), [], []), wiring.now)
    with ExitStack() as undo:
        undo.callback(agent.journal.close)
        service = wiring.service_parts(conf.load([]), {"compute1": agent}, f"sqlite:///{database_file}", undo).service
        client = on_unix_socket(create_app(service, control=make_control(), max_body_bytes=4096).test_client())
        for path in (
            "/healthcheck",
            "/v1/hosts",
            *(f"/v1/hosts/compute1{end}" for end in ("", "/topology", "/guests")),
        ):
            assert client.get(path).status_code == 200, path
        answers = [client.get(path) for path in ("/v1/runs?limit=50", "/v1/audit/verify", "/v1/hosts/compute1/policy")]
        answers += [client.get(f"/v1/runs/run-{number}") for number in range(50)]
        answers += [client.post("/v1/hosts/compute1/plans", json={"sample_seconds": 0})]
        refused = [answer for answer in answers if answer.status_code == 503]
        assert refused
        assert {answer.status_code for answer in answers} <= {200, 201, 404, 503}
        assert all(answer.headers["Retry-After"] for answer in refused)
        message = refused[0].json["error"]["message"]
        assert str(database_file) in message
        assert "Repair: " in message


def test_a_stored_value_that_is_damaged(sqlite):
    from pinner.store.runs.runs import Runs

    Runs(sqlite).add(make_run(), make_entries(count=1))
    with sqlite.begin() as connection:
        connection.execute(text("UPDATE entries SET change = '{\"kind\":'"))
        connection.execute(text("UPDATE runs SET started_at = 'yesterday'"))
    with pytest.raises(StoreUnavailable, match=r"a stored value is damaged.*Repair"):
        Runs(sqlite).entries("run-1")
    with pytest.raises(StoreUnavailable, match=r"a stored value is damaged.*Repair"):
        Runs(sqlite).get("run-1")


def test_a_database_that_is_repaired_is_used_without_a_restart(tmp_path, database_file):
    copy = database_file.read_bytes()
    damage(database_file, replaced)
    with open_store(f"sqlite:///{database_file}") as store:
        with pytest.raises(StoreUnavailable):
            store.runs.get("run-1")
        database_file.write_bytes(copy)
        assert store.runs.get("run-1").id == "run-1"


def test_a_file_set_aside_is_kept(database_file, capsys):
    content = database_file.read_bytes()
    Path(f"{database_file}-wal").write_bytes(b"wal")
    assert manage.main(["db", "set-aside", str(database_file), "--yes"]) == 0
    main, wal = (Path(line.removeprefix("kept as ")) for line in capsys.readouterr().out.splitlines())
    assert (main.read_bytes(), wal.read_bytes()) == (content, b"wal")
    assert not database_file.exists()
    assert manage.main(["db", "set-aside", str(database_file), "--yes"]) == 2
    with closing(sqlite3.connect(main)) as raw:
        assert raw.execute("SELECT count(*) FROM runs").fetchone() == (50,)


def test_a_full_disk_is_named(sqlite):
    """SQLite reports a full disk also where a file may not grow beyond a number of pages."""
    from pinner.store.runs.runs import Runs

    with sqlite.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 10")
        connection.rollback()
    with pytest.raises(StoreUnavailable, match=r"disk is full\. Repair: free space"):
        Runs(sqlite).add(make_run(error="x" * 2**20))


@pytest.mark.needs("root")
def test_wrong_permissions_are_named(tmp_path_factory):
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        connect(f"sqlite:///{name}/pinner.sqlite").dispose()
        Path(name).chmod(0o755)
        os.seteuid(65534)
        try:
            why = r"unable to open.*Repair: it must be a file"
            with open_store(f"sqlite:///{name}/pinner.sqlite") as store, pytest.raises(StoreUnavailable, match=why):
                store.runs.running()
        finally:
            os.seteuid(0)


def test_an_unusable_journal_can_be_closed(journal_file):
    damage(journal_file, folder)
    journal = open_journal(journal_file.parent)
    assert isinstance(journal, UnusableJournal)
    journal.leave(make_run())
    journal.close()
    with pytest.raises(StoreUnavailable):
        journal.interrupted()


def test_an_unusable_journal_is_logged_once(journal_file, caplog):
    """Each snapshot of a server named the same cause twice more."""
    damage(journal_file, replaced)
    journal = open_journal(journal_file.parent)
    masks = LastMasks(journal)
    for _ in range(2):
        assert masks() == ()
        assert pins_of(journal, ["g1"]).placed == {"g1"}
    (logged,) = caplog.messages
    assert logged.startswith("no plan can be applied and no run rolled back")
    assert str(journal_file) in logged


def test_an_agent_starts_again_when_its_journal_can_be_used_again(journal_file, monkeypatch):
    """A disk that was full at the start left an agent that changed nothing until somebody restarted it."""
    moved = journal_file.with_name("moved")
    journal_file.rename(moved)
    journal_file.mkdir()
    retry = JournalRetry(journal_file.parent)
    waits = []

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == 3:
            journal_file.rmdir()
            moved.rename(journal_file)
        return False

    monkeypatch.setattr(retry._stop, "wait", wait)
    with pytest.raises(PinnerError, match="can be used again"):
        retry._repeat()
    assert len(waits) == 3
    with closing(open_journal(journal_file.parent)) as journal:
        assert isinstance(journal, StoredJournal)


def test_an_agent_makes_no_empty_journal_while_its_damaged_one_is_repaired(journal_file, monkeypatch):
    """An operator moved the file away to copy a backup, and found an agent with an empty journal."""
    content = journal_file.read_bytes()
    journal_file.write_bytes(b"no database" * 500)
    retry = JournalRetry(journal_file.parent)
    waits = []

    def wait(seconds):
        waits.append(seconds)
        if len(waits) == 1:
            journal_file.unlink()
        if len(waits) == 3:
            assert not journal_file.exists()
            journal_file.write_bytes(content)
        return len(waits) > 3

    monkeypatch.setattr(retry._stop, "wait", wait)
    with pytest.raises(PinnerError, match="can be used again"):
        retry._repeat()
    with closing(open_journal(journal_file.parent)) as journal:
        assert journal.run("run-0").state == "applied"


def test_the_inventory_works_with_both_files_damaged(tmp_path):
    """The real command on this machine, with its state folder in tmp_path."""
    state = tmp_path / "state"
    (state / "agent").mkdir(parents=True)
    (state / "api").mkdir()
    (state / "agent/journal.sqlite").write_bytes(b"no database" * 1000)
    (state / "api/pinner.sqlite").write_bytes(b"no database" * 1000)
    config = tmp_path / "pinner.conf"
    config.write_text(f"[agent]\nstate_dir = {state}\n")
    command = [sys.executable, "-c", MAIN, "inventory", "--config-file", str(config)]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "internal" not in answer.stderr
    assert answer.stderr.count("no plan can be applied") == 1
    assert "CPU" in answer.stdout or "host_unreachable" in answer.stderr or "libvirt" in answer.stderr
