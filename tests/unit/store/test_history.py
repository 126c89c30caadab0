"""The history of measures on disk."""

import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import rrdtool
from support.store.history import BEGIN, GUEST, fill

from pinner.model.errors import Invalid, NotFound
from pinner.model.outcome.measures import GUEST_SERIES, HOST, HOST_SERIES, ROWS, Measured
from pinner.store import history as history_files
from pinner.store.history import ENDED_FILES, HistoryFiles


def test_values_come_back_in_their_steps(tmp_path):
    history = HistoryFiles(tmp_path / "state" / "history")
    end = fill(history, 300)
    fine = history.read(HOST, end - timedelta(minutes=3), end, 5)
    assert fine.step == 5
    assert set(fine.values["pressure"]) == {7.0}
    assert len(fine.values["pressure"]) == 36
    assert fine.begin == end - timedelta(minutes=3) + timedelta(seconds=5)
    assert set(fine.values["squeezed"]) == {None}
    assert history.read(HOST, end - timedelta(minutes=3), end, 60).values["pressure"] == (7.0,) * 3


def test_what_was_not_measured_is_not_known(tmp_path):
    history = HistoryFiles(tmp_path)
    end = fill(history, 60)
    later = fill(history, 60, begin=end + timedelta(minutes=2))
    values = history.read(HOST, BEGIN, later, 5).values["pressure"]
    assert None in values
    assert values[-1] == 7.0


def test_a_file_never_grows(tmp_path):
    history = HistoryFiles(tmp_path)
    end = fill(history, 60)
    size = (tmp_path / "host.rrd").stat().st_size
    fill(history, 7200, begin=end)
    assert (tmp_path / "host.rrd").stat().st_size == size


def test_a_host_of_twenty_guests_needs_a_few_mib(tmp_path):
    history = HistoryFiles(tmp_path)
    guests = [f"{number:08d}-0000-4000-8000-000000000001" for number in range(20)]
    history.write([Measured(HOST, "", {}), *(Measured(guest, "", {}) for guest in guests)], BEGIN)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 11 * 1024**2


@pytest.mark.parametrize("subject", ["../host", "", "host/..", "6F1F5D6E-0000-4000-8000-000000000001", "a.rrd"])
def test_a_name_that_is_no_subject_opens_no_file(tmp_path, subject):
    with pytest.raises(Invalid, match="subject"):
        HistoryFiles(tmp_path).read(subject, BEGIN, BEGIN + timedelta(1), 60)


def test_a_subject_without_a_history_is_not_found(tmp_path):
    with pytest.raises(NotFound, match="measures"):
        HistoryFiles(tmp_path).read(GUEST, BEGIN, BEGIN + timedelta(1), 60)


@pytest.mark.parametrize("step", [0, 1, 61, 10**9])
def test_a_step_that_is_not_kept_is_refused_with_the_kept_ones(tmp_path, step):
    with pytest.raises(Invalid, match="5, 60, 900"):
        HistoryFiles(tmp_path).read(HOST, BEGIN, BEGIN + timedelta(1), step)


def test_a_beginning_after_the_end_is_refused(tmp_path):
    history = HistoryFiles(tmp_path)
    end = fill(history, 60)
    with pytest.raises(Invalid, match="from"):
        history.read(HOST, end, BEGIN, 5)


def other_file(file: Path, names: list[str], step: int = 5, rows: int = 720) -> None:
    """A file as another version of pinner could have written it."""
    sources = [f"DS:{name}:GAUGE:15:0:U" for name in names]
    start = int(BEGIN.timestamp()) - 60
    rrdtool.create(str(file), "--step", str(step), "--start", str(start), *sources, f"RRA:AVERAGE:0.5:1:{rows}")


HOST_NAMES = [series.name for series in HOST_SERIES]


@pytest.mark.parametrize("step", [5, 10])
def test_a_file_with_other_steps_is_put_aside(tmp_path, caplog, step):
    """Else nothing could be written to it, for ever."""
    other_file(tmp_path / "host.rrd", HOST_NAMES, step)
    history = HistoryFiles(tmp_path)
    end = fill(history, 60)
    assert history.read(HOST, BEGIN, end, 5).values["pressure"][-1] == 7.0
    assert history.read(HOST, BEGIN, end, 60).step == 60
    assert (tmp_path / "host.rrd.old").exists()
    assert "put aside as host.rrd.old: it has other steps" in caplog.text


def test_a_file_of_a_version_with_fewer_series_gets_the_others_and_keeps_its_values(tmp_path, monkeypatch, caplog):
    """An update of pinner costs no history; a second start adds nothing more."""
    older = GUEST_SERIES[:2]
    with monkeypatch.context() as patched:
        patched.setattr(history_files, "series_of", lambda _: older)
        write_guest(HistoryFiles(tmp_path), 0, delay_vcpu=4.0)
        write_guest(HistoryFiles(tmp_path), 5, delay_vcpu=4.0)
    for second in (10, 15):
        history = HistoryFiles(tmp_path)
        write_guest(history, second, delay_vcpu=5.0, drops=1.0, packets_in=99.0, packets_out=0.0)
    values = history.read(GUEST, BEGIN, BEGIN + timedelta(seconds=15), 5).values
    assert values["delay_vcpu"] == (4.0, 5.0, 5.0)
    assert values["packets_in"][1:] == (99.0, 99.0)
    assert values["loss"][1:] == (1.0, 1.0)
    assert [file.name for file in tmp_path.iterdir()] == [f"{GUEST}.rrd"]
    assert (tmp_path / f"{GUEST}.rrd").stat().st_mode & 0o777 == 0o600
    assert caplog.text == ""


def test_a_full_disk_costs_a_file_of_an_older_version_only_the_new_series(tmp_path, caplog, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(history_files, "series_of", lambda _: GUEST_SERIES[:2])
        write_guest(HistoryFiles(tmp_path), 0, delay_vcpu=4.0)
    history = HistoryFiles(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(rrdtool, "tune", lambda *_: None)
        for second in (5, 10):
            write_guest(history, second, delay_vcpu=4.0, packets_in=99.0)
    assert "no room for " in caplog.text
    write_guest(history, 15, delay_vcpu=4.0, packets_in=99.0)
    values = history.read(GUEST, BEGIN, BEGIN + timedelta(seconds=15), 5).values
    assert (values["delay_vcpu"], values["packets_in"]) == ((4.0, 4.0, 4.0), (None, None, 99.0))
    assert [file.name for file in tmp_path.iterdir()] == [f"{GUEST}.rrd"]


def test_a_full_disk_costs_no_copies(tmp_path, caplog, monkeypatch):
    """Each attempt to add a series copies the file."""
    history, copied, tune = HistoryFiles(tmp_path), [], rrdtool.tune
    monkeypatch.setattr(rrdtool, "tune", lambda *given: copied.append(given) or tune(*given))
    space = shutil.disk_usage(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(shutil, "disk_usage", lambda _: space._replace(free=history_files.ROOM - 1))
        for second in (5, 10, 15):
            write_guest(history, second, delay_vcpu=4.0, ping=2.0, ping_loss=0.0)
    assert copied == []
    assert "no room for ping, ping_loss; the disk may be full" in caplog.text
    for second in (20, 25):
        write_guest(history, second, delay_vcpu=4.0, ping=2.0, ping_loss=0.0)
    assert len(copied) == 1
    values = history.read(GUEST, BEGIN, BEGIN + timedelta(seconds=25), 5).values
    assert (values["delay_vcpu"][1:], values["ping"][3:]) == ((4.0,) * 4, (2.0, 2.0))
    assert (tmp_path / f"{GUEST}.rrd").stat().st_size < history_files.ROOM


def test_the_loss_follows_from_the_series_of_its_step_also_where_it_alone_is_asked_for(tmp_path):
    """The mean of shares is no share: of two packets one was dropped, and then one of 1,998."""
    history = HistoryFiles(tmp_path)
    for second in range(5, 125, 5):
        passed = 1.0 if second <= 60 else 1997.0
        write_guest(history, second, drops=1.0, packets_in=passed, packets_out=0.0)
    end = BEGIN + timedelta(minutes=2)
    assert history.read(GUEST, BEGIN, end, 5, series=("loss",)).values.keys() == {"loss"}
    assert history.read(GUEST, end - timedelta(seconds=15), end, 5).values["loss"][-1] == pytest.approx(100 / 1998)
    assert "loss" not in history.read(GUEST, BEGIN, end, 5, series=("drops",)).values


def write_guest(history: HistoryFiles, second: int, **rates: float | None) -> None:
    history.write([Measured(GUEST, "web-1", rates)], BEGIN + timedelta(seconds=second))


@pytest.mark.parametrize(
    ("begin", "end", "step"),
    [
        (datetime(1969, 12, 31, 23, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC), 5),
        (datetime(1969, 12, 1, tzinfo=UTC), datetime(1969, 12, 15, tzinfo=UTC), 900),
        (datetime(1975, 1, 1, tzinfo=UTC), datetime(1975, 1, 2, tzinfo=UTC), 60),
        (datetime(1, 1, 1, tzinfo=UTC), datetime(1, 1, 2, tzinfo=UTC), 60),
    ],
)
def test_of_a_time_before_all_measures_nothing_is_known(tmp_path, begin, end, step):
    """RRDtool takes such a number for a distance from now, and returned the values of the last hour."""
    history = HistoryFiles(tmp_path)
    now = datetime.now(UTC)
    fill(history, 3600, begin=now - timedelta(hours=1))
    found = history.read(HOST, begin, end, step)
    assert found.begin < BEGIN
    assert {value for values in found.values.values() for value in values} == {None}


def test_subjects_without_a_later_value_are_not_named(tmp_path):
    history, now = HistoryFiles(tmp_path), datetime.now(UTC)
    history.write([Measured(HOST, "", {}), Measured(GUEST, "", {})], now)
    os.utime(tmp_path / f"{GUEST}.rrd", (now.timestamp() - 60,) * 2)
    assert history.subjects(now - timedelta(seconds=60)) == (HOST, GUEST)
    assert history.subjects(now - timedelta(seconds=30)) == (HOST,)
    assert history.subjects() == (HOST, GUEST)


def test_a_value_changes_the_time_of_its_file(tmp_path):
    history, now = HistoryFiles(tmp_path), datetime.now(UTC)
    history.write([Measured(HOST, "", {})], now - timedelta(seconds=60))
    os.utime(tmp_path / "host.rrd", (now.timestamp() - 60,) * 2)
    history.write([Measured(HOST, "", {})], now)
    assert history.subjects(now - timedelta(seconds=30)) == (HOST,)


@pytest.mark.parametrize(
    ("old", "new"),
    [(b"GAUGE", b"GAUFE"), (b"AVERAGE", b"\0VERAGE"), (b"pressure", b"pr\xff\xfesure")],
    ids=["the kind of a series", "the kind of an archive", "the name of a series"],
)
def test_a_file_that_can_be_opened_and_takes_no_values_is_put_aside(tmp_path, old, new):
    folder = tmp_path / "block"
    history = HistoryFiles(folder)
    end = fill(history, 60)
    file = folder / "host.rrd"
    file.write_bytes(file.read_bytes().replace(old, new))
    last = fill(HistoryFiles(folder), 60, begin=end)
    assert history.read(HOST, end, last, 5).values["pressure"][-1] == 7.0
    assert (folder / "host.rrd.old").exists()


def test_guests_that_are_gone_for_a_month_are_deleted(tmp_path):
    history = HistoryFiles(tmp_path)
    history.write([Measured(GUEST, "web-1", {})], BEGIN)
    written = datetime.fromtimestamp((tmp_path / f"{GUEST}.rrd").stat().st_mtime, UTC)
    history.purge(written + timedelta(days=30), set())
    assert history.subjects() == (GUEST,)
    history.purge(written + timedelta(days=32), set())
    assert history.subjects() == ()


def uuid(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


def ended_guests(folder: Path, count: int, now: datetime, first: int = 0) -> list[Path]:
    """Files of guests that ended, the newest first, a minute between two."""
    files = [folder / f"{uuid(first + number)}.rrd" for number in range(count)]
    for number, file in enumerate(files):
        file.write_bytes(b"")
        os.utime(file, (now.timestamp() - 60 * number,) * 2)
    return files


def test_of_the_guests_that_ended_only_the_newest_files_are_kept(tmp_path):
    """500 guests of an hour each day would need 5 GiB. A guest that was paused for long has an old file."""
    history, now = HistoryFiles(tmp_path), datetime.now(UTC)
    files = ended_guests(tmp_path, ENDED_FILES + 20, now)
    old = files[-1].rename(files[-1].with_suffix(".rrd.old"))
    running = {uuid(ENDED_FILES + 10)}
    history.purge(now, {HOST, *running})
    assert set(tmp_path.iterdir()) == {*files[:ENDED_FILES], tmp_path / f"{uuid(ENDED_FILES + 10)}.rrd"}
    assert not old.exists()
    history.purge(now, {HOST, *running})
    assert len(set(tmp_path.iterdir())) == ENDED_FILES + 1


def test_a_file_of_a_time_to_come_pushes_out_no_other_one(tmp_path):
    history, now = HistoryFiles(tmp_path), datetime.now(UTC)
    ended_guests(tmp_path, 50, now + timedelta(days=365), first=1000)
    files = ended_guests(tmp_path, ENDED_FILES, now)
    history.purge(now, {HOST, GUEST})
    assert set(tmp_path.iterdir()) == set(files)


def test_without_a_guest_that_runs_no_file_is_too_much(tmp_path):
    """libvirtd may have been down for an hour."""
    history, now = HistoryFiles(tmp_path), datetime.now(UTC)
    files = ended_guests(tmp_path, ENDED_FILES + 20, now)
    history.purge(now, {HOST})
    assert set(tmp_path.iterdir()) == set(files)


def test_the_steps_reach_an_hour_a_day_and_a_month():
    assert [step * rows / 86400 for step, rows in ROWS.items()] == pytest.approx([1 / 24, 1, 31])


def test_only_the_owner_reads_the_files(tmp_path: Path):
    history = HistoryFiles(tmp_path / "history")
    fill(history, 10)
    assert (tmp_path / "history").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "history" / "host.rrd").stat().st_mode & 0o777 == 0o600


def test_a_guest_has_the_series_of_pings_from_its_first_answer_on(tmp_path):
    history = HistoryFiles(tmp_path)
    file = tmp_path / f"{GUEST}.rrd"

    def write(second: int, **rates: float | None) -> None:
        history.write([Measured(GUEST, "web-1", {"delay_vcpu": 4.0, **rates})], BEGIN + timedelta(seconds=second))

    def read(end: int) -> dict[str, tuple[float | None, ...]]:
        return dict(history.read(GUEST, BEGIN, BEGIN + timedelta(seconds=end), 5).values)

    write(5, ping=None, ping_loss=None)
    size = file.stat().st_size
    write(10, ping=None, ping_loss=None)
    assert file.stat().st_size == size
    assert "ping" not in read(10)
    for second in (15, 20):
        write(second, ping=2.0, ping_loss=0.0)
    write(25, ping=None, ping_loss=None)
    found = read(25)
    assert found["ping"] == (None, None, 2.0, 2.0, None)
    assert found["ping_loss"] == (None, None, 0.0, 0.0, None)
    assert found["delay_vcpu"][1:] == (4.0,) * 4
    assert file.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == [file.name]


def test_a_clock_that_is_set_back_a_little_costs_no_history(tmp_path, caplog):
    """The values of the seconds that come twice are those of the first time."""
    history = HistoryFiles(tmp_path)
    end = fill(history, 1200)
    fill(history, 300, 9.0, begin=end - timedelta(seconds=30))
    values = history.read(HOST, BEGIN, end + timedelta(seconds=270), 5).values["pressure"]
    assert values.count(7.0) > 235
    assert values.count(9.0) > 50
    assert [each.name for each in tmp_path.iterdir()] == ["host.rrd"]
    assert caplog.text == ""


def test_a_full_disk_costs_a_guest_its_pings_and_nothing_else(tmp_path, caplog, monkeypatch):
    """RRDtool then leaves the file as it is, and raises nothing."""
    monkeypatch.setattr(rrdtool, "tune", lambda *_: None)
    history = HistoryFiles(tmp_path)
    for second in (5, 10):
        rates = {"delay_vcpu": 4.0, "ping": 1.0, "ping_loss": 0.0}
        history.write([Measured(GUEST, "web-1", rates)], BEGIN + timedelta(seconds=second))
    found = history.read(GUEST, BEGIN, BEGIN + timedelta(seconds=10), 5).values
    assert found["delay_vcpu"][-1] == 4.0
    assert "ping" not in found
    assert "no room for ping, ping_loss; the disk may be full" in caplog.text
