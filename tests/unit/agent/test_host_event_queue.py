"""News is kept in order, waited for, and never lost in silence."""

import threading
from datetime import timedelta

from support.values import NOON

from pinner.agent.host_event_queue import KEPT, HostEventQueue


def room() -> HostEventQueue:
    return HostEventQueue(lambda: NOON)


def test_news_comes_in_order_and_once():
    events = room()
    events.publish("guest-started", "a")
    events.publish("guest-changed", "a", "vcpupin")
    first, second = events.since(0, 0.0, ())
    assert [(each.kind, each.detail) for each in (first, second)] == [
        ("guest-started", ""),
        ("guest-changed", "vcpupin"),
    ]
    assert second.seq == first.seq + 1
    assert events.since(first.seq, 0.0, ()) == (second,)
    assert events.since(second.seq, 0.0, ()) == ()


def test_a_caller_is_woken_by_news():
    events, heard = room(), []
    waiting = threading.Thread(target=lambda: heard.extend(events.since(0, 10.0, ())))
    waiting.start()
    events.publish("cpu-changed", "3", "offline")
    waiting.join(5)
    assert [each.subject for each in heard] == ["3"]


def test_closing_lets_everybody_go():
    events = room()
    waiting = threading.Thread(target=lambda: events.since(0, 30.0, ()))
    waiting.start()
    events.close()
    waiting.join(5)
    assert not waiting.is_alive()
    assert events.since(0, 30.0, ()) == ()


def test_what_was_dropped_is_told():
    events = room()
    events.publish("guest-started", "first")
    (first,) = events.since(0, 0.0, ())
    for number in range(KEPT + 1):
        events.publish("process-started", str(number))
    found = events.since(first.seq, 0.0, ())
    assert (found[0].kind, len(found)) == ("lost", KEPT + 1)
    assert [each.seq for each in found] == list(range(found[0].seq, found[0].seq + KEPT + 1))
    assert events.since(found[0].seq, 0.0, ()) == found[1:]


def test_a_new_agents_numbers_are_higher_than_an_old_ones():
    old = room()
    old.publish("guest-started", "a")
    new = HostEventQueue(lambda: NOON + timedelta(seconds=1))
    new.publish("guest-stopped", "a")
    (last,) = old.since(0, 0.0, ())
    lost, first = new.since(last.seq, 0.0, ())
    assert (lost.kind, first.kind) == ("lost", "guest-stopped")


def test_sources_hear_when_others_are_asked_for():
    events = room()
    asked: list[frozenset[str]] = []
    events.on_watched(lambda: asked.append(events.watched))
    for names in (("a",), ("a",), ("b", "a"), ("a", "b"), ()):
        events.since(0, 0.0, names)
    assert asked == [{"a"}, {"a", "b"}, frozenset()]
