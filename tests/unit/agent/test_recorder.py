"""The recorder of measures."""

import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from support.values import NOON

from pinner.agent.recorder import Recorder
from pinner.model.errors import HostUnreachable, NotFound, StoreUnavailable
from pinner.model.outcome.measures import HOST, Counts, Measured
from pinner.store.history import HistoryFiles

GUEST = "6f1f5d6e-0000-4000-8000-000000000001"


class Clock:
    """A clock that goes on by five seconds each time it is read."""

    def __init__(self):
        self.now = NOON

    def __call__(self):
        self.now += timedelta(seconds=5)
        return self.now


def counts(at, drops, guest_drops=None):
    host = Counts(HOST, "", at, {}, {"nic_drops": {"eth0": drops}})
    guest = [] if guest_drops is None else [Counts(GUEST, "web-1", at, {}, {"drops": {"vnet0": guest_drops}})]
    return (host, *guest)


def test_what_is_measured_between_two_counts_is_kept(tmp_path):
    meter = iter([counts(0, 0, 0), counts(5, 50, 5), counts(10, 100, 10), counts(15, 150, 15)])
    clock = Clock()
    recorder = Recorder(lambda: next(meter), HistoryFiles(tmp_path), clock)
    assert recorder.record() == ()
    for _ in range(3):
        recorder.record()
    histories = recorder.measures(NOON, clock.now, 5)
    assert [(each.subject, each.name) for each in histories] == [(HOST, ""), (GUEST, "web-1")]
    assert histories[0].values["nic_drops"][-1] == pytest.approx(10)
    for guest in (GUEST, "web-1"):
        (found,) = recorder.measures(NOON, clock.now, 5, guest)
        assert (found.subject, found.values["drops"][-1]) == (GUEST, pytest.approx(1))
    (found,) = recorder.measures(NOON, clock.now, 5, "", ("drops", "use_vcpu"))
    assert (found.subject, sorted(found.values)) == (GUEST, ["drops", "use_vcpu"])


def test_a_guest_that_ended_keeps_its_history_and_loses_its_name(tmp_path):
    meter = iter([counts(0, 0, 0), counts(5, 0, 0), counts(10, 0)])
    clock = Clock()
    recorder = Recorder(lambda: next(meter), HistoryFiles(tmp_path), clock)
    for _ in range(3):
        recorder.record()
    assert [each.name for each in recorder.measures(NOON, clock.now, 5, GUEST)] == [""]


@pytest.mark.parametrize("subject", [HOST, GUEST])
def test_a_guest_that_is_named_like_another_subject_does_not_hide_its_measures(tmp_path, subject):
    other = "6f1f5d6e-0000-4000-8000-000000000002"
    named = [Counts(other, subject, at, {}, {"drops": {"vnet1": at}}) for at in (0, 5, 10, 15)]
    # The other subject has ended at the last count.
    meter = iter([(named[0], *counts(0, 0, 0)), (named[1], *counts(5, 0, 0)), (named[2], *counts(10, 0)), (named[3],)])
    clock = Clock()
    recorder = Recorder(lambda: next(meter), HistoryFiles(tmp_path), clock)
    for _ in range(4):
        recorder.record()
        assert [each.subject for each in measured(recorder, clock, subject)] in ([], [subject])
    assert [each.subject for each in measured(recorder, clock, subject)] == [subject]


def measured(recorder, clock, subject):
    with suppress(NotFound):  # its first count gave no values
        return recorder.measures(NOON, clock.now, 5, subject)
    return ()


class Purged(HistoryFiles):
    """Notes which subjects run at each purge."""

    def __init__(self, folder):
        super().__init__(folder)
        self.running = []

    def purge(self, at, running):
        self.running.append(running)
        super().purge(at, running)


def test_a_guest_runs_for_a_purge_if_it_was_counted_since_the_last_one(tmp_path):
    meter = iter([counts(0, 0, 0), counts(5, 0), counts(10, 0)])
    kept = Purged(tmp_path)
    recorder = Recorder(lambda: next(meter), kept, Clock())
    for _ in range(3):
        recorder.record()
        recorder.purge()
    assert kept.running == [{HOST, GUEST}, {HOST, GUEST}, {HOST}]


def test_guests_that_ended_before_the_span_are_not_read(tmp_path):
    """Their files stay for a month: a host with many short guests would read thousands every few seconds."""
    now = datetime.now(UTC)
    files, guests = HistoryFiles(tmp_path), [f"{number:08x}-0000-4000-8000-000000000001" for number in range(30)]
    files.write([Measured(each, "", {}) for each in (HOST, *guests)], now)
    for guest in guests[2:]:
        os.utime(tmp_path / f"{guest}.rrd", (now.timestamp() - 7200,) * 2)
    recorder = Recorder(tuple, files, lambda: now)
    found = recorder.measures(now - timedelta(hours=1), now, 5)
    assert [each.subject for each in found] == [HOST, *guests[:2]]
    assert recorder.measures(now - timedelta(hours=1), now, 5, guests[-1])[0].subject == guests[-1]


@pytest.mark.parametrize(
    ("error", "why"),
    [(HostUnreachable("qemu:///system", "no"), "qemu:///system"), (MemoryError(), "no memory is left")],
)
def test_a_host_that_cannot_be_measured_is_named_and_tried_again(tmp_path, caplog, error, why):
    answers = iter([error, counts(0, 0)])

    def meter():
        answer = next(answers, None)
        if answer is None:
            recorder.stop()
            return ()
        if isinstance(answer, Exception):
            raise answer
        return answer

    recorder = Recorder(meter, HistoryFiles(tmp_path), Clock(), seconds=0.01)
    recorder.start()
    recorder.join()
    assert "the host is not measured" in caplog.text
    assert why in caplog.text
    assert "the host is measured again" in caplog.text


def test_a_count_that_comes_late_is_not_followed_at_once(tmp_path, monkeypatch):
    """After a stall of the agent or of libvirtd, the next count comes a whole interval later."""
    clock, waits, begins = [0.0], [], []
    monkeypatch.setattr("pinner.agent.recorder.time.monotonic", lambda: clock[0])

    def meter():
        begins.append(clock[0])
        clock[0] += 40 if len(begins) == 2 else 1
        return counts(clock[0], 0)

    recorder = Recorder(meter, HistoryFiles(tmp_path), Clock(), seconds=5)

    def wait(seconds):
        waits.append(seconds)
        clock[0] += seconds
        return len(begins) == 5

    monkeypatch.setattr(recorder._stop, "wait", wait)
    recorder._repeat()
    assert begins == [0, 5, 50, 55, 60]


def test_a_subject_without_values_is_not_found(tmp_path):
    with pytest.raises(NotFound):
        Recorder(lambda: (), HistoryFiles(tmp_path), Clock()).measures(NOON, NOON + timedelta(1), 5, GUEST)


def test_a_damaged_history_of_a_guest_that_ended_hides_no_other(tmp_path, caplog):
    meter = iter([counts(0, 0, 0), counts(5, 50, 5), counts(10, 100)])
    clock = Clock()
    recorder = Recorder(lambda: next(meter), HistoryFiles(tmp_path), clock)
    for _ in range(3):
        recorder.record()
    (tmp_path / f"{GUEST}.rrd").write_bytes(b"RRD" + b"\0" * 100)
    assert [each.subject for each in recorder.measures(NOON, clock.now, 5)] == [HOST]
    assert GUEST in caplog.text
    with pytest.raises(StoreUnavailable, match=GUEST):
        recorder.measures(NOON, clock.now, 5, GUEST)
