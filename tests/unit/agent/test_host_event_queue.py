"""Host events are returned in order, callers wait for them, and the loss of an event is reported."""

import threading
from datetime import timedelta

import pytest
from support.values import NOON

from pinner.agent.host_event_queue import CAPACITY, HostEventQueue


def make_queue() -> HostEventQueue:
    return HostEventQueue(lambda: NOON)


def test_events_are_returned_in_order_and_once():
    queue = make_queue()
    queue.publish("guest-started", "a")
    queue.publish("guest-changed", "a", "vcpupin")
    first, second = queue.since(0, 0.0, ())
    assert [(event.kind, event.detail) for event in (first, second)] == [
        ("guest-started", ""),
        ("guest-changed", "vcpupin"),
    ]
    assert second.seq == first.seq + 1
    assert queue.since(first.seq, 0.0, ()) == (second,)
    assert queue.since(second.seq, 0.0, ()) == ()


def test_an_event_ends_a_wait():
    queue, received = make_queue(), []
    waiting = threading.Thread(target=lambda: received.extend(queue.since(0, 10.0, ())))
    waiting.start()
    queue.publish("cpu-changed", "3", "offline")
    waiting.join(60)
    assert [event.subject for event in received] == ["3"]


def test_close_ends_every_wait():
    queue = make_queue()
    waiting = threading.Thread(target=lambda: queue.since(0, 30.0, ()))
    waiting.start()
    queue.close()
    waiting.join(60)
    assert not waiting.is_alive()
    assert queue.since(0, 30.0, ()) == ()


def test_dropped_events_are_reported_as_lost():
    queue = make_queue()
    queue.publish("guest-started", "first")
    (first,) = queue.since(0, 0.0, ())
    for number in range(CAPACITY + 1):
        queue.publish("process-started", str(number))
    found = queue.since(first.seq, 0.0, ())
    assert (found[0].kind, len(found)) == ("lost", CAPACITY + 1)
    assert [event.seq for event in found] == list(range(found[0].seq, found[0].seq + CAPACITY + 1))
    assert queue.since(found[0].seq, 0.0, ()) == found[1:]


def test_a_new_agent_continues_with_higher_numbers():
    old = make_queue()
    old.publish("guest-started", "a")
    new = HostEventQueue(lambda: NOON + timedelta(seconds=1))
    new.publish("guest-stopped", "a")
    (last,) = old.since(0, 0.0, ())
    lost, first = new.since(last.seq, 0.0, ())
    assert (lost.kind, first.kind) == ("lost", "guest-stopped")


def test_a_new_agent_reports_at_once_that_events_may_be_lost():
    """Also while no event has happened since: nobody knows what happened while no agent ran."""
    old = make_queue()
    old.publish("guest-started", "a")
    (last,) = old.since(0, 0.0, ())
    new = HostEventQueue(lambda: NOON + timedelta(seconds=1))
    (lost,) = new.since(last.seq, 0.0, ())
    assert lost.kind == "lost"
    assert new.since(lost.seq, 0.0, ()) == ()


def test_the_source_is_called_when_the_watched_names_change():
    queue = make_queue()
    watched: list[frozenset[str]] = []
    queue.on_watched(lambda: watched.append(queue.watched))
    for names in (("a",), ("a",), ("b", "a"), ("a", "b"), ()):
        queue.since(0, 0.0, names)
    assert watched == [{"a"}, {"a", "b"}, frozenset()]


@pytest.mark.fault(55)
def test_an_agent_that_starts_after_the_clock_was_set_back_freezes_no_caller():
    """Its numbers are lower than those that the caller has from the earlier agent."""
    earlier = HostEventQueue(lambda: NOON + timedelta(hours=1))
    earlier.publish("guest-started", "a")
    (last,) = earlier.since(0, 0.0, ())
    queue = make_queue()
    queue.publish("guest-started", "b")
    (lost,) = queue.since(last.seq, 10.0, ())
    assert lost.kind == "lost"
    queue.publish("guest-started", "c")
    assert [event.subject for event in queue.since(lost.seq, 0.0, ())] == ["c"]


def test_a_caller_without_names_leaves_the_watched_processes_as_they_are():
    queue, changes = make_queue(), []
    queue.since(0, 0.0, ("sshd",))
    queue.on_watched(lambda: changes.append(queue.watched))
    queue.since(0, 0.0, None)
    assert (queue.watched, changes) == ({"sshd"}, [])
    queue.since(0, 0.0, ())
    assert changes == [frozenset()]
