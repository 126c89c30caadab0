"""The receive rings of cards as changes of a plan, on a made-up host."""

from dataclasses import replace

import pytest
from support import hosts
from support.hosts import cpus

from pinner import codec
from pinner.model.errors import Refused
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.settings.cards import RxRing
from pinner.model.states import Number
from pinner.planning import admission, planner
from pinner.planning.admission import identified

WITH = Request(remedies=("rings",))
RINGS = (
    RxRing("ens1", 2, 512, 4096, has_dropped=True),
    RxRing("ens2", 3, 512, 4096, has_dropped=False),
    RxRing("ens3", 4, 4096, 4096, has_dropped=True),
    RxRing("ens4", 5, 0, 0, has_dropped=True),
)


def host(rings=RINGS):
    return hosts.snapshot(hosts.plain(16), [hosts.guest(1, 2, cpus("0-15"))], rings=rings)


def plan(taken, request=WITH):
    return planner.plan(taken, codec.content_hash(taken), request)


def changed(made):
    return {str(each.target): each.after.value for each in made.changes if each.target.kind == "ring"}


def after(taken, made):
    given = {each.target.key: each.after for each in made.changes}
    moved = tuple(replace(each, size=given.get(each.target.key, Number(each.size)).value) for each in taken.rings)
    return replace(hosts.applied(taken, made), rings=moved)


def test_a_card_that_has_dropped_packets_gets_its_largest_ring_and_a_second_plan_changes_nothing():
    made = plan(host())
    assert changed(made) == {"ring ens1": 4096}
    assert [each for each in made.warnings if "restart the card" in each] == [
        "ens1: most drivers restart the card for another size of its ring"
    ]
    assert plan(after(host(), made)).changes == ()
    assert codec.load(Plan, codec.dump(made)) == made


def test_a_plan_never_lowers_a_ring():
    assert changed(plan(host((RxRing("ens1", 2, 8192, 4096, has_dropped=True),)))) == {}


def permit(made, taken):
    known, ended = identified(made, taken)
    admission.require_permitted(known, taken, admission.Past(), migrate_memory=False)
    return ended


@pytest.mark.parametrize(
    ("ring", "before", "size", "request_", "why"),
    [
        (RINGS[0], 512, 4096, Request(), "does not ask for rings"),
        (RINGS[0], 512, 64, WITH, "the maximum of 4096 packets, and no other size"),
        (RINGS[0], 512, 1 << 20, WITH, "the maximum of 4096 packets, and no other size"),
        (RINGS[0], 8192, 4096, WITH, "it has 8192 packets already"),
        (RINGS[1], 512, 4096, WITH, "the card has dropped no packets"),
        (RINGS[3], 0, 0, WITH, "the card has dropped no packets"),
    ],
)
def test_the_agent_refuses_other_changes(ring, before, size, request_, why):
    made = plan(host())
    (change,) = [each for each in made.changes if each.target.kind == "ring"]
    forged = replace(change, target=ring.target, before=Number(before), after=Number(size))
    with pytest.raises(Refused, match=why):
        permit(replace(made, changes=(forged,), request=request_), host())
