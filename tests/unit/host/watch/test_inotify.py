from contextlib import closing
from pathlib import Path

import pytest
from support.system.kernel import THREADS, cpuset, process

from pinner.host.kernel.kernel import cpuset_mount
from pinner.host.watch.sources import FileWritten, Inotify


@pytest.fixture
def inotify():
    with closing(Inotify()) as opened:
        yield opened


def test_writes_to_watched_files_are_reported_once(inotify, tmp_path):
    watched, other = tmp_path / "watched", tmp_path / "other"
    for file in (watched, other):
        file.write_text("0")
    assert inotify.watch([str(watched), str(tmp_path / "missing")]) == ()
    for text in ("1", "2"):
        watched.write_text(text)
        other.write_text(text)
    watched.read_text()
    assert list(inotify.read()) == [FileWritten(str(watched))]
    assert list(inotify.read()) == []


def test_a_file_that_is_no_longer_watched_is_not_reported(inotify, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for file in (first, second):
        file.write_text("0")
    inotify.watch([str(first)])
    inotify.watch([str(second)])
    first.write_text("1")
    second.write_text("1")
    assert list(inotify.read()) == [FileWritten(str(second))]


def test_a_file_that_was_created_again_is_watched_after_a_new_call(inotify, tmp_path):
    file = tmp_path / "file"
    file.write_text("0")
    inotify.watch([str(file)])
    file.unlink()
    file.write_text("1")
    inotify.watch([str(file)])
    list(inotify.read())
    file.write_text("2")
    assert list(inotify.read()) == [FileWritten(str(file))]


@pytest.mark.needs("cpusets")
def test_a_write_to_the_cpuset_of_a_cgroup_is_reported(inotify):
    with process(THREADS.format(count=1)) as pid, cpuset("0", pid) as path:
        file = cpuset_mount(Path("/")).folder / path.lstrip("/") / "cpuset.cpus"
        inotify.watch([str(file)])
        file.write_text("0")
        assert list(inotify.read()) == [FileWritten(str(file))]
