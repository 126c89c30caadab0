"""What a server deletes once a day, where the clock is ahead and where it is right."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.values import NOON, make_run

from pinner import wiring
from pinner.model.page import PageRequest
from pinner.model.run.audit import Caller
from pinner.service.upkeep.retention import Calendar, Daily
from pinner.store.repositories import Store, open_store

DAY = timedelta(days=1)


class Clock:
    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("pinner.wiring.service.now", clock)
    return clock


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    (tmp_path / "api").mkdir()
    with open_store(f"sqlite:///{tmp_path}/api/pinner.sqlite") as store:
        yield store


@pytest.fixture
def serve(tmp_path: Path, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A server that runs for some days, from some days after NOON on."""
    file = tmp_path / "pinner.conf"
    file.write_text(f"[agent]\nstate_dir = {tmp_path}\n")
    config = wiring.configuration([file])
    parts = SimpleNamespace(store=store, service=SimpleNamespace(export_audit=list))

    def serve(at: timedelta, days: int = 1) -> None:
        clock.now = NOON + at
        left = iter([False] * days)

        def wait(_seconds: float) -> bool:
            clock.now += DAY
            return next(left, True)

        def start(daily: Daily) -> None:
            monkeypatch.setattr(daily._stop, "wait", wait)
            daily._repeat()

        monkeypatch.setattr(Daily, "start", start)
        with ExitStack() as undo:
            wiring.start_retention(config, parts, SimpleNamespace(), undo)

    return serve


def fill(store: Store) -> None:
    store.runs.add(make_run("run-1", state="undone"))
    store.tokens.create("ann", "reader", "", NOON + 400 * DAY, NOON, Caller("ann", "here", "req-1"))


def kept(store: Store) -> tuple[int, int]:
    return len(store.runs.list(None, PageRequest(500)).items), len(store.tokens.list())


@pytest.mark.parametrize("days_before", [0, 1], ids=["after a short first start", "after a day"])
def test_a_clock_that_is_years_ahead_at_the_start_deletes_nothing(serve, store, caplog, days_before: int) -> None:
    serve(0 * DAY, days_before)
    fill(store)
    for _ in range(5):  # not after restarts, either
        serve(3650 * DAY)
    assert kept(store) == (1, 1)
    assert "nothing is deleted today: the clock says 20" in caplog.text
    serve(2 * DAY)
    assert kept(store) == (1, 1)


def test_a_clock_that_is_right_deletes_what_is_old(serve, store) -> None:
    serve(0 * DAY)
    fill(store)
    serve(1 * DAY, 88)
    assert kept(store) == (1, 1)
    serve(89 * DAY, 3)
    assert kept(store) == (0, 1)


def test_a_host_that_was_off_deletes_what_is_old_some_days_later(serve, store, caplog) -> None:
    serve(0 * DAY)
    fill(store)
    serve(100 * DAY)
    assert kept(store) == (1, 1)
    days = int(caplog.text.partition("wait for ")[2].split()[0])
    serve(101 * DAY, days - 1)
    assert kept(store) == (1, 1)
    serve((100 + days) * DAY)
    assert kept(store) == (0, 1)


def test_a_clock_that_was_ahead_and_is_set_counts_at_once(serve, store) -> None:
    serve(3650 * DAY)
    fill(store)
    serve(91 * DAY, 2)
    assert kept(store) == (0, 1)
    serve(3650 * DAY)
    assert kept(store) == (0, 1)


def test_a_server_that_restarts_each_day_deletes_what_is_old_after_its_host_was_off(serve, store) -> None:
    serve(0 * DAY)
    fill(store)
    for day in range(100, 112):
        serve(day * DAY)
    assert kept(store) == (0, 1)


def test_restarts_within_a_day_do_not_make_a_clock_that_is_ahead_count(serve, store) -> None:
    serve(0 * DAY)
    fill(store)
    for hour in range(0, 24 * 8, 7):
        serve(104 * DAY + hour * DAY / 24)
    assert kept(store) == (1, 1)


def test_a_clock_that_begins_years_ago_until_it_is_set_does_not_delay_what_follows(serve, store) -> None:
    """So does the clock of a host with an empty battery at each boot."""
    serve(0 * DAY)
    fill(store)
    serve(1 * DAY, 87)
    serve(-9000 * DAY)
    serve(89 * DAY, 3)
    assert kept(store) == (0, 1)


@pytest.mark.parametrize("content", ["", "yesterday", "\u0663", "2026-01-01", "0001-01-01 0001-01-01", None])
def test_a_time_that_cannot_be_read_deletes_nothing_until_the_next_day(tmp_path, clock, content: str | None) -> None:
    file = tmp_path / "last"
    calendar = Calendar(file, clock)
    file.unlink()
    if content is not None:
        file.write_text(content)
    assert calendar.today() is None
    assert calendar.today() == NOON


def test_a_time_that_cannot_be_written_deletes_nothing(tmp_path, clock, caplog) -> None:
    calendar = Calendar(tmp_path / "none" / "last", clock)
    assert calendar.today() is None
    assert calendar.today() is None
    assert "cannot be written" in caplog.text
