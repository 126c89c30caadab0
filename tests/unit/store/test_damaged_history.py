"""Files of the history that are damaged, of another version, or of a clock that was set."""

from datetime import UTC, datetime, timedelta

import pytest
import rrdtool
from support.store.history import BEGIN, GUEST, fill

from pinner.model.errors import StoreUnavailable
from pinner.model.outcome.measures import HOST, Measured
from pinner.store.history import HistoryFiles


def test_a_damaged_file_is_put_aside_and_named(tmp_path, caplog):
    history = HistoryFiles(tmp_path)
    end = fill(history, 60)
    (tmp_path / "host.rrd").write_bytes(b"RRD" + b"\0" * 100)
    with pytest.raises(StoreUnavailable, match=r"host\.rrd"):
        history.read(HOST, BEGIN, end, 5)
    last = fill(history, 60, begin=end)
    assert history.read(HOST, end, last, 5).values["pressure"][-1] == 7.0
    assert (tmp_path / "host.rrd.old").exists()
    assert "put aside" in caplog.text


@pytest.mark.parametrize("content", [b"", b"RRD", b"text" * 1000, "half"])
def test_a_file_that_is_no_whole_file_is_put_aside(tmp_path, content):
    history = HistoryFiles(tmp_path)
    end = fill(history, 60)
    file = tmp_path / "host.rrd"
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2] if content == "half" else content)
    last = fill(history, 60, begin=end)
    assert history.read(HOST, end, last, 5).values["pressure"][-1] == 7.0
    assert (tmp_path / "host.rrd.old").exists()


@pytest.mark.parametrize(
    "why",
    [
        "opening '{0}': Too many open files",
        "opening '{0}': Too many open files in system",
        "mmaping file '{0}': Cannot allocate memory",
        "opening '{0}': Input/output error",
        "allocating rrd_file descriptor for '{0}'",
        "could not lock RRD",
        "",
    ],
)
def test_a_file_that_cannot_be_opened_for_a_moment_keeps_its_values(tmp_path, caplog, monkeypatch, why):
    """An error is no state: a moment without descriptors or memory once cost a month of history."""
    history = HistoryFiles(tmp_path)
    end = fill(history, 60)
    with monkeypatch.context() as patch:

        def last(file):
            raise rrdtool.OperationalError(why.format(file))

        patch.setattr(rrdtool, "last", last)
        later = fill(history, 5, begin=end)
    assert "the measures of host are not kept" in caplog.text
    later = fill(history, 5, begin=later)
    assert history.read(HOST, BEGIN + timedelta(seconds=5), later, 5).values["pressure"] == (7.0,) * 13
    assert [file.name for file in tmp_path.iterdir()] == ["host.rrd"]


@pytest.mark.parametrize("back", [0, 1, 5])
def test_a_second_value_of_a_step_puts_nothing_aside(tmp_path, caplog, back):
    """Two counts in one second, and a clock that is set back by a moment, must not cost a month of history."""
    history = HistoryFiles(tmp_path)
    end = fill(history, 60)
    history.write([Measured(HOST, "", {"pressure": 9.0})], end - timedelta(seconds=back))
    later = fill(history, 60, begin=end)
    assert history.read(HOST, BEGIN + timedelta(seconds=5), later, 5).values["pressure"] == (7.0,) * 23
    assert [file.name for file in tmp_path.iterdir()] == ["host.rrd"]
    assert not caplog.text


def test_values_of_a_clock_that_was_ahead_are_put_aside(tmp_path, caplog):
    history = HistoryFiles(tmp_path)
    end = fill(history, 60)
    history.write([Measured(HOST, "", {"pressure": 9.0})], end - timedelta(seconds=60))
    assert "its values are newer than now" in caplog.text
    assert (tmp_path / "host.rrd.old").exists()


def test_the_first_and_the_last_file_that_were_put_aside_are_kept(tmp_path):
    """A second step of the clock once replaced the values of a month by those of a minute."""
    history = HistoryFiles(tmp_path)
    fill(history, 60, begin=BEGIN + timedelta(days=2))
    first = (tmp_path / "host.rrd").read_bytes()
    for step in range(1, 4):
        fill(history, 60, begin=BEGIN + timedelta(days=2) - timedelta(hours=step))
    assert {file.name for file in tmp_path.iterdir()} == {"host.rrd", "host.rrd.old", "host.rrd.old2"}
    assert (tmp_path / "host.rrd.old").read_bytes() == first


def test_a_file_of_this_version_is_checked_once_and_stays(tmp_path, monkeypatch):
    end = fill(HistoryFiles(tmp_path), 60)
    checked, info = [], rrdtool.info
    monkeypatch.setattr(rrdtool, "info", lambda file: (checked.append(file), info(file))[1])
    history = HistoryFiles(tmp_path)
    end = fill(history, 5, begin=end)
    first = tuple(checked)
    fill(history, 60, begin=end)
    assert first
    assert tuple(checked) == first
    assert [file.name for file in tmp_path.iterdir()] == ["host.rrd"]


def test_a_file_whose_names_are_no_text_is_damaged(tmp_path):
    history = HistoryFiles(tmp_path)
    end = fill(history, 60)
    file = tmp_path / "host.rrd"
    file.write_bytes(file.read_bytes().replace(b"pressure", b"pr\xff\xfesure"))
    with pytest.raises(StoreUnavailable, match=r"host\.rrd"):
        history.read(HOST, BEGIN, end, 5)


def test_a_failure_without_a_reason_names_the_usual_one(tmp_path, caplog, monkeypatch):
    def create(*_):
        raise rrdtool.OperationalError("")

    monkeypatch.setattr(rrdtool, "create", create)  # as RRDtool 1.7 does on a full disk
    HistoryFiles(tmp_path).write([Measured(HOST, "", {"pressure": 1.0})], BEGIN)
    assert "the disk may be full" in caplog.text


def test_what_was_put_aside_is_deleted_with_its_age(tmp_path):
    history = HistoryFiles(tmp_path)
    left = [tmp_path / f"{GUEST}.rrd{end}" for end in (".old", "X4mGk2")]
    for file in left:
        file.write_bytes(b"")
    history.purge(datetime.now(UTC), set())
    assert set(tmp_path.iterdir()) == set(left)
    history.purge(datetime.now(UTC) + timedelta(days=32), set())
    assert not set(tmp_path.iterdir())


def test_a_clock_that_steps_back_begins_a_new_file(tmp_path):
    history = HistoryFiles(tmp_path)
    fill(history, 60, begin=BEGIN + timedelta(hours=1))
    end = fill(history, 60)
    assert history.read(HOST, BEGIN, end, 5).values["pressure"][-1] == 7.0
    assert (tmp_path / "host.rrd.old").exists()


def test_a_folder_that_cannot_be_written_loses_the_values_and_says_so(tmp_path, caplog):
    history = HistoryFiles(tmp_path / "history")
    (tmp_path / "history").rmdir()
    history.write([Measured(HOST, "", {"pressure": 1.0})], BEGIN)
    assert "the measures of host are not kept" in caplog.text
