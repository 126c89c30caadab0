"""Hints on a guest after events that are late, come twice, out of order, or from clocks that differ."""

import itertools
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.hosts import NOON

from pinner.model.event import GuestEvent
from pinner.model.guest.guest import NovaIdentity
from pinner.planning.policy.event_order import MAX_AHEAD, REMEMBERED, hint_after

HOUR = timedelta(hours=1)
SOURCE, DESTINATION = "compute1", "compute2"
NOVA = NovaIdentity("web", "p", "u", "big", {"pinner:excluded": "true"}, "7", has_specs=True)


def seconds(number):
    return timedelta(seconds=number)


def event(kind, at=0.0, publisher=SOURCE, request="req-1", **parts):
    return GuestEvent(
        "g", kind, f"instance.{kind}", "nova", NOON + seconds(at), publisher=publisher, request=request, **parts
    )


def handled(*events, now=NOON, hint=None, is_here=True):
    """The hint after events that arrive one after the other, and why the last one is ignored."""
    why = ""
    for each in events:
        hint, why = hint_after(hint, each, SOURCE, now, is_here=is_here, migration=HOUR)
    return hint, why


def test_events_of_one_publisher_are_ordered_by_their_times():
    later = event("started", nova=NOVA)
    hint, why = handled(later, event("started", -60, nova=replace(NOVA, flavor="small")))
    assert (hint.nova, why) == (NOVA, "it is late: a later event, of 2026-11-21 12:00:00 UTC, was handled before")
    assert handled(later, later) == handled(later)


def test_a_late_end_of_a_migration_erases_no_hint():
    first = handled(event("started", -120, nova=NOVA))[0]
    assert handled(event("gone", -60), hint=first) == (first, "libvirt has the guest on this host")
    back = handled(event("started", -30, nova=NOVA, request="req-3"), hint=first)[0]
    assert handled(event("gone", -60), hint=back, is_here=False)[0] == back
    forgotten, why = handled(event("gone", 1), hint=back, is_here=False)
    assert (forgotten.nova, forgotten.leaving_until, why) == (None, None, "")
    assert handled(event("gone", 1, request=""), hint=back, is_here=False) == (None, "")


def test_a_begin_that_comes_after_the_end_of_its_migration_is_late():
    stayed = event("started", 5, request="req-2")
    hint, why = handled(stayed, event("leaving", 0, DESTINATION, "req-2"), now=NOON + seconds(6))
    assert (hint.leaving_until, why) == (None, "it is late: its migration has ended, and the guest is on this host")


@pytest.mark.parametrize("skew", [-20, -3, 0, 3, 50])
def test_the_clock_of_the_destination_may_differ(skew):
    hint, why = handled(event("started"), event("leaving", skew, DESTINATION, "req-2"))
    assert (hint.leaving_until, why) == (NOON + HOUR, "")


def test_only_a_later_event_or_the_end_of_its_migration_says_that_a_guest_stays():
    leaves = handled(event("leaving", -2, DESTINATION, "req-2"))[0]
    assert handled(event("started", -1, request="req-0"), hint=leaves)[0].leaving_until == NOON + HOUR
    assert handled(event("started", -1, request="req-2"), hint=leaves)[0].leaving_until is None
    assert handled(event("started", 1, request="req-3"), hint=leaves)[0].leaving_until is None


def test_null_extra_specs_keep_those_of_the_same_flavor():
    unknown = replace(NOVA, extra_specs={}, has_specs=False)
    known = event("started", nova=NOVA)
    assert handled(known, event("started", 1, nova=unknown))[0].nova == NOVA
    other = replace(unknown, flavor="small", flavor_id="8")
    assert handled(known, event("started", 1, nova=other))[0].nova == other
    none = replace(NOVA, extra_specs={})
    assert handled(known, event("started", 1, nova=none))[0].nova == none


def test_the_host_of_a_guest_knows_its_flavor_better_than_the_destination():
    leaving = event("leaving", 1, DESTINATION, nova=replace(NOVA, flavor="small"))
    assert handled(event("started", request="req-0", nova=NOVA), leaving)[0].nova == NOVA


def test_a_hint_stays_small():
    events = [event("started", number / 100, f"h{number}", f"req-{number}") for number in range(100)]
    order = handled(*events)[0].order
    assert (len(order.latest), len(order.requests)) == (REMEMBERED, REMEMBERED)


STAYED = (
    event("started", -20, request="req-0", nova=replace(NOVA, flavor="small", flavor_id="8")),
    event("leaving", -10, DESTINATION, "req-1"),
    event("started", -5, request="req-1", nova=NOVA),
    event("started", -1, request="req-2", nova=NOVA),
)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
@given(skew=st.floats(-15, 15), twice=st.booleans())
def test_any_order_of_a_migration_that_failed_ends_with_a_guest_that_stays(order, skew, twice):
    events = [STAYED[number] for number in order]
    events = [replace(each, at=each.at + seconds(skew)) if each.kind == "leaving" else each for each in events]
    hint, _ = handled(*events, *(events if twice else ()))
    assert (hint.leaving_until, hint.nova) == (None, NOVA)


THERE_AND_BACK = (
    event("leaving", -20, DESTINATION, "req-1"),
    event("gone", -10, request="req-1"),
    event("started", -5, request="req-2", nova=NOVA),
)


@pytest.mark.parametrize("skew", [-10, 0, 10])
@pytest.mark.parametrize(("known", "twice"), list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize(
    ("order", "returned"),
    [(order, returned) for order in itertools.permutations(range(3)) for returned in range(order.index(2) + 1)],
    ids=str,
)
def test_any_order_of_a_migration_there_and_back_ends_with_a_guest_that_stays(order, returned, skew, known, twice):
    """``returned`` events arrive before libvirt has the guest again; its return is reported after that."""
    events = [THERE_AND_BACK[number] for number in order]
    events = [replace(each, at=each.at + seconds(skew)) if each.kind == "leaving" else each for each in events]
    hint = handled(event("started", -60, request="req-0", nova=replace(NOVA, flavor="small")))[0] if known else None
    for number, each in enumerate([*events, *(events if twice else ())]):
        hint, _ = handled(each, hint=hint, is_here=number >= returned)
    assert (hint.leaving_until, hint.nova) == (None, NOVA)


def test_a_clock_that_was_set_back_hides_no_later_event():
    ahead = handled(event("started", 3600, nova=NOVA), now=NOON + HOUR)[0]
    small = replace(NOVA, flavor="small", flavor_id="8")
    assert handled(event("started", nova=small), hint=ahead)[0].nova == small
    assert handled(event("started", MAX_AHEAD.total_seconds() + 1))[1].startswith(
        "its time 2026-11-21 12:01:01 UTC is 61 s ahead"
    )
