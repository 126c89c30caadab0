"""Facts about guests that only events report, added to a snapshot."""

from datetime import timedelta

from support.hosts import NOON, cpus, guest, plain, snapshot

from pinner.model.event import GuestHint
from pinner.model.guest import NovaIdentity
from pinner.model.request import Request
from pinner.planning import planner
from pinner.planning.placement.guest_hints import with_guest_hints

WRITTEN = NovaIdentity("i-1", "p-1", "", "small")
NOVA = NovaIdentity("i-2", "p-2", "u-2", "big", {"hw:cpu_policy": "dedicated"})


def with_hints(hints, **parts):
    host = snapshot(plain(16), [guest(1, 2, cpus("0-15"), **parts), guest(2, 2, cpus("0-15"))])
    return with_guest_hints(host, {each.guest: each for each in hints}, NOON)


def hint(number=1, **parts):
    return GuestHint(f"00000000-0000-4000-8000-{number:012d}", "compute1", NOON, **parts)


def test_a_notified_identity_fills_the_fields_that_the_metadata_lack():
    first, second = with_hints([hint(nova=NOVA)], nova=WRITTEN).guests
    assert first.nova == NovaIdentity("i-1", "p-1", "u-2", "small", {"hw:cpu_policy": "dedicated"})
    assert first.dedicated
    assert (second.nova, second.dedicated) == (None, False)
    assert with_hints([hint(nova=NOVA)]).guests[0].nova == NOVA


def test_a_guest_that_is_being_migrated_away_is_skipped_for_a_time():
    host = with_hints([hint(leaving_until=NOON + timedelta(seconds=1)), hint(2, leaving_until=NOON)])
    assert [each.leaving for each in host.guests] == [True, False]
    plan = planner.plan(host, "s", Request())
    assert {change.target.name for change in plan.changes} == {"g2"}
    assert "it is being migrated away" in {left.why for left in plan.skipped}
