"""Files that are complete under their name, or not there."""

import resource
import signal
from contextlib import contextmanager

import pytest

from pinner import whole_file
from pinner.model.errors import StoreUnavailable
from pinner.store.database import engine


@contextmanager
def files_of_at_most(size: int):
    """This process can write no longer file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


def test_the_first_file_counts_and_its_mode_is_0600(tmp_path):
    path = tmp_path / "file"
    whole_file.create(path, b"first")
    whole_file.create(path, b"second")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"first", 0o600)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_replaced_with_its_mode(tmp_path):
    path = tmp_path / "file"
    path.write_text("before")
    whole_file.replace(path, b"after", 0o755)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"after", 0o755)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("write", [whole_file.create, whole_file.replace])
def test_a_file_that_cannot_be_written_whole_is_not_there(tmp_path, write):
    with files_of_at_most(10), pytest.raises(OSError, match="File too large"):
        write(tmp_path / "file", b"." * 100)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        whole_file.create(tmp_path / "none" / "file", b"")


def test_a_database_that_cannot_be_created_leaves_no_draft(tmp_path):
    with files_of_at_most(10), pytest.raises(StoreUnavailable):
        engine.connect(f"sqlite:///{tmp_path}/pinner.sqlite")
    assert list(tmp_path.iterdir()) == []
