"""Which notifications are unversioned, and the warning about hosts that send no others."""

import pytest
from support.nova.samples import OWN

from pinner.nova.broker.notification import Formats

UNVERSIONED = ("compute.h1", "compute.instance.create.end", {"instance_id": "i"})
VERSIONED = ("nova-compute:h1", "instance.create.end", OWN.load("create-end")["payload"])


@pytest.fixture
def formats():
    return Formats()


def test_a_host_that_sends_only_unversioned_notifications_is_reported_once_a_minute(formats, caplog):
    assert all(formats.is_unversioned(*UNVERSIONED) for _ in range(100))
    (record,) = caplog.records
    assert "host h1 sends unversioned notifications only" in record.message
    assert "[notifications] notification_format = both (or versioned)" in record.message


def test_a_host_that_sends_both_formats_is_not_reported(formats, caplog):
    for _ in range(100):
        assert formats.is_unversioned(*UNVERSIONED)
        assert not formats.is_unversioned(*VERSIONED)
    assert caplog.records == []


def test_publishers_and_events_of_any_length_are_neither_kept_nor_logged(formats, caplog):
    for _ in range(5):
        formats.is_unversioned("compute." + "x" * 1_000_000, "compute.instance.create.end", {})
        formats.is_unversioned("compute.h1", "compute." + "x" * 1_000_000, {})
    assert list(formats._unversioned) == ["h1"]
    (record,) = caplog.records
    assert len(record.message) < 1000


def test_a_publisher_and_an_event_write_no_line_of_their_own_into_the_log(formats, caplog):
    for _ in range(2):
        formats.is_unversioned("compute.h1\nall is well\x1b[2J", "compute.x\nall is well", {})
    (record,) = caplog.records
    assert record.message.isprintable()
    assert "host h1\\nall is well\\x1b[2J sends" in record.message


@pytest.mark.parametrize(
    "message",
    [(None, None, None), ("x", "instance.create.end", None), ("scheduler.h1", "scheduler.x.end", {}), (7, 7, [1])],
)
def test_other_messages_are_not_reported(formats, caplog, message):
    for _ in range(5):
        formats.is_unversioned(*message)
    assert caplog.records == []


def test_the_number_of_hosts_is_bounded(monkeypatch):
    monkeypatch.setattr("pinner.nova.broker.notification.MAX_HOSTS", 10)
    formats = Formats()
    for number in range(100):
        formats.is_unversioned(f"compute.h{number}", *UNVERSIONED[1:])
    assert len(formats._unversioned) == 10
