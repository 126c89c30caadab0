"""A full disk is told before the next run fails."""

import errno
import os
import subprocess
from contextlib import closing, nullcontext

import pytest
from sqlalchemy import func, make_url, select
from support.store.database_servers import SERVERS

from pinner.model.errors import StoreUnavailable
from pinner.store.database import tables
from pinner.store.database.engine import connect, reading
from pinner.store.database.probe import DatabaseProbe, require_room
from pinner.store.journal.journal import StoredJournal
from pinner.store.repositories import open_store

pytestmark = pytest.mark.fault(70)


@pytest.fixture(params=[errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO])
def full(request, monkeypatch):
    def refuse(*_):
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    return os.strerror(request.param)


def test_a_folder_with_room_is_left_as_it_is(tmp_path):
    require_room(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_room_is_named_with_the_reason(tmp_path, full):
    with pytest.raises(StoreUnavailable, match=f"{tmp_path}.*{full}"):
        require_room(tmp_path)


def test_the_journal_and_the_database_need_room_to_be_ready(tmp_path, full):
    with (
        open_store(f"sqlite:///{tmp_path}/pinner.sqlite") as store,
        closing(StoredJournal(tmp_path / "agent")) as journal,
    ):
        for check in (journal.require_room, store.probe.check):
            with pytest.raises(StoreUnavailable, match=full):
                check()


def test_a_small_file_system_that_is_full_has_no_room(tmp_path):
    if os.geteuid():
        pytest.skip("only root mounts file systems")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path], check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        with pytest.raises(StoreUnavailable, match="No space left"):
            require_room(tmp_path)
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def read_only_replica(databases, kind, folder):
    """The URL of a database that a user without special rights can only read."""
    url, server = databases.fresh(kind, folder), databases.server(kind)
    name = str(make_url(url).database)
    if kind == "postgresql":
        server.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        return url, nullcontext()
    server.execute("CREATE OR REPLACE USER reader@'%' IDENTIFIED BY ''")
    server.execute(f"GRANT ALL ON {name}.* TO reader@'%'")
    return make_url(url).set(username="reader").render_as_string(hide_password=False), server.changed({"read_only": 1})


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_that_takes_no_row_is_not_ready(databases, tmp_path, kind):
    url, is_replica = read_only_replica(databases, kind, tmp_path)
    with is_replica, open_store(url) as store:
        assert store.tokens.list() == ()
        with pytest.raises(StoreUnavailable, match=r"read.only"):
            store.probe.check()


@pytest.mark.parametrize("kind", SERVERS)
def test_the_row_that_is_tried_is_not_left(databases, tmp_path, kind):
    engine = connect(databases.fresh(kind, tmp_path))
    try:
        DatabaseProbe(engine).check()
        with reading(engine) as connection:
            assert connection.execute(select(func.count()).select_from(tables.idempotency_keys)).scalar() == 0
    finally:
        engine.dispose()
