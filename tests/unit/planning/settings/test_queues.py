"""The queues of cards as changes of a plan, on a made-up host."""

from dataclasses import replace

import pytest
from support import hosts
from support.hosts import cpus

from pinner import codec
from pinner.model.errors import Refused
from pinner.model.machine.interrupts import DeviceIrq, DeviceIrqs
from pinner.model.machine.topology import Device
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.settings.cards import CardQueues
from pinner.model.snapshot import Snapshot
from pinner.model.states import Number
from pinner.planning import admission, planner
from pinner.planning.admission import identified
from pinner.planning.placement import drifts, record

WITH = Request(remedies=("queues",))
CARDS = (
    CardQueues("ens1", 2, 1, 64),
    CardQueues("ens2", 3, 1, 4),
    CardQueues("ens3", 4, 2, 64),
    CardQueues("ens4", 5, 1, 1),
    CardQueues("ens5", 6, 0, 0),
    CardQueues("ens6", 7, 1, 64, is_up=False),
    CardQueues("ens7", 8, 1, 64),
)
NODES = (("ens1", 1), ("ens2", 0), ("ens7", None))


def host(cards=CARDS):
    """Two nodes of eight CPUs."""
    devices = tuple(Device("net", name, node) for name, node in NODES)
    return hosts.snapshot(hosts.plain(16, 2, devices=devices), [hosts.guest(1, 2, cpus("0-15"))], queues=cards)


def plan(taken, request=WITH):
    return planner.plan(taken, codec.content_hash(taken), request)


def changed(made):
    return {str(each.target): each.after.value for each in made.changes if each.target.kind == "queues"}


def after(taken, made):
    given = {each.target.key: each.after for each in made.changes}
    moved = (replace(each, count=given.get(each.target.key, Number(each.count)).value) for each in taken.queues)
    return replace(hosts.applied(taken, made), queues=tuple(moved))


@pytest.mark.parametrize("request_", [WITH, Request(fix=("nic-single-queue",))], ids=["with", "fix"])
def test_a_card_with_one_queue_gets_one_for_each_cpu_of_its_node_and_a_second_plan_changes_nothing(request_):
    made = plan(host(), request_)
    assert changed(made) == {"queues ens1": 8, "queues ens2": 4, "queues ens7": 16}
    assert [each.partition(":")[0] for each in made.warnings if "restart the card" in each] == ["ens1", "ens2", "ens7"]
    assert plan(after(host(), made), request_).changes == ()
    assert codec.load(Plan, codec.dump(made)) == made
    assert codec.load(Snapshot, codec.dump(host())) == host()


def test_the_interrupts_of_the_former_queues_are_placed_after_the_card_has_its_new_ones():
    taken = replace(host(), irqs=DeviceIrqs((DeviceIrq(24, "ens1-0", "0000:3b:00.0", cpus("0-15")),)))
    made = plan(taken, Request(remedies=("irqs", "queues")))
    kinds = [each.target.kind for each in made.changes]
    assert kinds.index("irq") > kinds.index("queues")


def test_a_policy_puts_the_number_back_and_leaves_another_number_alone():
    made = plan(host())
    placement, now = record(made, host(), None), after(host(), made)
    assert planner.plan_from_placement(now, "s2", WITH, placement).changes == ()
    seen = replace(now, queues=(CARDS[0], *now.queues[1:]))
    (drift,) = drifts(planner.plan_from_placement(seen, "s2", WITH, placement), placement, seen)
    assert (str(drift.target), tuple(map(str, drift.states))) == ("queues ens1", ("1", "8"))
    chosen = replace(now, queues=(replace(CARDS[0], count=6), *now.queues[1:]))
    assert planner.plan_from_placement(chosen, "s2", WITH, placement).changes == ()


def permit(made, taken):
    known, ended = identified(made, taken)
    admission.require_permitted(known, taken, admission.Past(), migrate_memory=False)
    return ended


@pytest.mark.parametrize(
    ("which", "before", "count", "request_", "why"),
    [
        (CARDS[0], 1, 8, Request(), "does not ask for queues of cards"),
        (CARDS[0], 1, 64, WITH, "a plan gives it 8 queues, and no other number"),
        (CARDS[0], 1, 0, WITH, "a plan gives it 8 queues, and no other number"),
        (CARDS[2], 2, 8, WITH, "it uses 2 queues already"),
    ],
)
def test_the_agent_refuses_other_changes(which, before, count, request_, why):
    made = plan(host())
    change = next(each for each in made.changes if each.target.kind == "queues")
    forged = replace(change, target=which.target, before=Number(before), after=Number(count))
    with pytest.raises(Refused, match=why):
        permit(replace(made, changes=(forged,), request=request_), host())
