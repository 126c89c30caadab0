"""Interrupts inside guests as changes of a plan, on a made-up host."""

from dataclasses import replace

import pytest
from support import hosts
from support.hosts import cpus

from pinner import codec
from pinner.model.plan.request import Request
from pinner.model.settings.inside import GuestIrq, GuestIrqs
from pinner.model.states import GuestCpus
from pinner.planning import planner
from pinner.planning.settings.inside.misfits import misfits
from pinner.planning.settings.table import ROWS

BOOT = "11111111-2222-3333-4444-555555555555"
GUEST = hosts.guest(1, 8, cpus("0-15"))


def irqs(queues, cards=1, vcpus="0-7", **chosen):
    """Those of a guest with eight vCPUs; ``chosen`` are vCPUs by the driver's name with _ in place of - and dots."""
    return GuestIrqs(
        GUEST.uuid,
        "g1",
        BOOT,
        cpus("0-7"),
        tuple(
            GuestIrq(
                27 + 2 * (card * queues + queue) + number,
                name := f"virtio{card}-{way}.{queue}",
                f"eth{card}",
                card + 2,
                queue,
                cpus(chosen.get(name.replace("-", "_").replace(".", "_"), vcpus)),
            )
            for card in range(cards)
            for queue in range(queues)
            for number, way in enumerate(("input", "output"))
        ),
    )


def host(found):
    return hosts.snapshot(hosts.plain(16, 2), [GUEST], guest_irqs=(found,))


def plan(found):
    taken = host(found)
    return planner.plan(taken, codec.content_hash(taken), Request(remedies=("guest-irqs",)))


def changed(found):
    made = plan(found)
    return {
        change.target.name.partition(" ")[2]: str(change.after)
        for change in made.changes
        if change.target.kind == "guest_irq"
    }


def test_both_interrupts_of_a_single_queue_leave_the_first_vcpu():
    assert changed(irqs(1)) == {"virtio0-input.0": "7", "virtio0-output.0": "7"}


@pytest.mark.parametrize("mask", ["0-7", "0-31"], ids=["online", "vCPUs that can be plugged in, too"])
@pytest.mark.parametrize(("queues", "cards"), [(2, 1), (4, 1), (8, 1), (1, 2), (2, 3)])
def test_each_queue_gets_a_vcpu_of_its_own(queues, cards, mask):
    given = changed(irqs(queues, cards, mask))
    assert len(given) == 2 * queues * cards
    assert len({*given.values()}) == queues * cards


def test_more_queues_than_vcpus_share_them_evenly():
    given = [*changed(irqs(8, 2)).values()]
    assert {given.count(vcpu) for vcpu in given} == {4}


def test_vcpus_that_were_chosen_stay():
    assert changed(irqs(2, vcpus="0-3")) == {}
    assert changed(irqs(1, virtio0_input_0="2")) == {"virtio0-output.0": "7"}


def test_what_a_guest_gets_is_found_once_and_not_for_each_change(monkeypatch):
    found, calls, row = irqs(8, 2), [], ROWS["guest_irq"]
    counted = replace(row, wanted=lambda each: calls.append(each.guest) or row.wanted(each))
    monkeypatch.setitem(ROWS, "guest_irq", counted)
    assert (misfits(plan(found), host(found)), calls) == ({}, [GUEST.uuid])


@pytest.mark.parametrize(
    ("found", "after", "why"),
    [
        (irqs(1), "6", "by what the guest says now, a plan gives it '7', not '6'"),
        (irqs(1, vcpus="2"), "7", "it has '2' now, and keeps that"),
    ],
)
def test_the_agent_makes_no_other_changes(found, after, why):
    change = next(change for change in plan(irqs(1)).changes if change.target.kind == "guest_irq")
    forged = replace(change, before=GuestCpus(found.irqs[0].vcpus), after=GuestCpus(cpus(after)))
    assert misfits(replace(plan(irqs(1)), changes=(forged,)), host(found)) == {forged.target: why}
