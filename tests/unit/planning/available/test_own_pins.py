"""A guest that becomes excluded or dedicated keeps pinner's pins, which are no claim of its owner's."""

from dataclasses import replace

import pytest
from support.hosts import applied, cpus, guest, plain, snapshot

from pinner.model.change import PartPin
from pinner.model.errors import NoFit
from pinner.model.guest.guest import Guest, NovaIdentity, with_nova_identity
from pinner.model.plan.request import Request
from pinner.planning.placement import record
from pinner.planning.planner import plan, plan_from_placement

pytestmark = pytest.mark.fault(77)

ALL = cpus("0-3")
REQUEST = Request("shared-pool", housekeeping="0", emulator="1")


def marked(found: Guest) -> Guest:
    return replace(found, excluded=True)


def by_flavor(found: Guest) -> Guest:
    return with_nova_identity(found, NovaIdentity("i", "p", "u", "f", {"pinner:excluded": "true"}))


def dedicated(found: Guest) -> Guest:
    return with_nova_identity(found, NovaIdentity("i", "p", "u", "f", {"hw:cpu_policy": "dedicated"}))


def named(found: Guest) -> Guest:
    """The guest whose metadata names all pins of its vCPUs."""
    return replace(found, own_pins=tuple(PartPin("vcpu", vcpu.id, vcpu.pin) for vcpu in found.vcpus))


def first(*pins: str, number: int = 1) -> Guest:
    return guest(number, len(pins), ALL, pins=pins)


EXEMPTIONS = pytest.mark.parametrize("exempt", [marked, by_flavor, dedicated])


@EXEMPTIONS
def test_pins_of_pinner_claim_no_cpus_and_those_of_others_do(exempt):
    own = snapshot(plain(4), [exempt(named(first("2", "3"))), guest(2, 2, ALL)])
    made = plan(own, "s", REQUEST)
    assert (str(made.roles.vcpu), made.blocked) == ("2-3", "")
    assert {want.target.name for want in made.wanted} == {"g2"}

    theirs = snapshot(plain(4), [exempt(first("2", "0-3")), guest(2, 2, ALL)])
    assert str(plan(theirs, "s", REQUEST).roles.vcpu) == "3"
    changed = replace(named(first("2", "0-3")), own_pins=(PartPin("vcpu", 0, cpus("1")),))
    assert str(plan(snapshot(plain(4), [exempt(changed), guest(2, 2, ALL)]), "s", REQUEST).roles.vcpu) == "3"


@EXEMPTIONS
def test_a_neighbour_stays_where_it_is_when_a_guest_becomes_exempt(exempt):
    """The pool has one CPU. A claim on it would push the neighbour onto housekeeping."""
    request = Request("shared-pool", housekeeping="0")
    before = snapshot(plain(2), [guest(1, 1, cpus("0-1")), guest(2, 1, cpus("0-1"))])
    made = plan(before, "s", request)
    placed = applied(before, made)
    pins = {vcpu.id: vcpu.thread.affinity for vcpu in placed.guests[0].vcpus if vcpu.thread}
    assert pins == {0: cpus("1")}
    leaving = replace(placed.guests[0], own_pins=(PartPin("vcpu", 0, cpus("1")),))
    now = replace(placed, guests=(exempt(leaving), placed.guests[1]))
    assert plan(now, "s", request).changes == ()
    theirs = replace(now, guests=(exempt(placed.guests[0]), placed.guests[1]))
    with pytest.raises(NoFit):
        plan(theirs, "s", request)
    assert plan_from_placement(now, "s", request, record(made, before, None)).changes == ()
