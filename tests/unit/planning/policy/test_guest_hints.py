"""Facts about guests that only events report, added to a snapshot."""

from dataclasses import replace
from datetime import timedelta

import pytest
from support.hosts import NOON, cpus, guest, plain, snapshot

from pinner.model.event import GuestHint
from pinner.model.guest.guest import NovaIdentity
from pinner.model.plan.request import Request
from pinner.planning import planner
from pinner.planning.policy.event_order import with_guest_hints

WRITTEN = NovaIdentity("i-1", "p-1", "", "big", flavor_id="7")
NOVA = NovaIdentity("i-2", "p-2", "u-2", "big", {"hw:cpu_policy": "dedicated"})


def with_hints(hints, **parts):
    host = snapshot(plain(16), [guest(1, 2, cpus("0-15"), **parts), guest(2, 2, cpus("0-15"))])
    return with_guest_hints(host, {each.guest: each for each in hints}, NOON)


def hint(number=1, **parts):
    return GuestHint(f"00000000-0000-4000-8000-{number:012d}", "compute1", NOON, **parts)


def test_a_notified_identity_fills_the_fields_that_the_metadata_lack():
    first, second = with_hints([hint(nova=NOVA)], nova=WRITTEN).guests
    assert first.nova == NovaIdentity("i-1", "p-1", "u-2", "big", {"hw:cpu_policy": "dedicated"}, "7")
    assert first.dedicated
    assert (second.nova, second.dedicated) == (None, False)
    assert with_hints([hint(nova=NOVA)]).guests[0].nova == NOVA


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(replace(WRITTEN, flavor="small", flavor_id=""), id="another name"),
        pytest.param(replace(WRITTEN, flavor_id="8"), id="another id of the same name"),
        pytest.param(replace(WRITTEN, has_specs=True), id="known to have none"),
    ],
)
def test_extra_specs_of_another_flavor_are_not_used(written):
    guest, _ = with_hints([hint(nova=replace(NOVA, flavor_id="7"))], nova=written).guests
    assert guest.nova == replace(written, user="u-2")
    assert not guest.dedicated


def test_a_guest_that_is_being_migrated_away_is_skipped_for_a_time():
    host = with_hints([hint(leaving_until=NOON + timedelta(seconds=1)), hint(2, leaving_until=NOON)])
    assert [each.leaving for each in host.guests] == [True, False]
    plan = planner.plan(host, "s", Request())
    assert {change.target.name for change in plan.changes} == {"g2"}
    assert "it is being migrated away" in {left.why for left in plan.skipped}
