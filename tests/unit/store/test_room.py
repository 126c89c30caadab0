"""A full disk is told before the next run fails."""

import errno
import os
import subprocess
from contextlib import closing

import pytest

from pinner.model.errors import StoreUnavailable
from pinner.store.journal import Journal
from pinner.store.repositories import open_store
from pinner.store.room import require_room

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
    with open_store(f"sqlite:///{tmp_path}/pinner.sqlite") as store, closing(Journal(tmp_path / "agent")) as journal:
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
