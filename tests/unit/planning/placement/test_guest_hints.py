"""What events told of guests, seen in a snapshot."""

from datetime import timedelta

from support.hosts import NOON, cpus, guest, plain, snapshot

from pinner.model.event import GuestHint
from pinner.model.guest import NovaIdentity
from pinner.model.request import Request
from pinner.planning import planner
from pinner.planning.placement.guest_hints import with_guest_hints

WRITTEN = NovaIdentity("i-1", "p-1", "", "small")
NOVA = NovaIdentity("i-2", "p-2", "u-2", "big", {"hw:cpu_policy": "dedicated"})


def seen(told, **parts):
    host = snapshot(plain(16), [guest(1, 2, cpus("0-15"), **parts), guest(2, 2, cpus("0-15"))])
    return with_guest_hints(host, {each.guest: each for each in told}, NOON)


def row(number=1, **parts):
    return GuestHint(f"00000000-0000-4000-8000-{number:012d}", "compute1", NOON, **parts)


def test_an_identity_fills_what_the_metadata_does_not_say():
    first, second = seen([row(nova=NOVA)], nova=WRITTEN).guests
    assert first.nova == NovaIdentity("i-1", "p-1", "u-2", "small", {"hw:cpu_policy": "dedicated"})
    assert first.dedicated
    assert (second.nova, second.dedicated) == (None, False)
    assert seen([row(nova=NOVA)]).guests[0].nova == NOVA


def test_a_guest_that_leaves_is_left_alone_for_a_time():
    host = seen([row(leaving_until=NOON + timedelta(seconds=1)), row(2, leaving_until=NOON)])
    assert [each.leaving for each in host.guests] == [True, False]
    plan = planner.plan(host, "s", Request())
    assert {change.target.name for change in plan.changes} == {"g2"}
    assert "it is being migrated away" in {left.why for left in plan.skipped}
