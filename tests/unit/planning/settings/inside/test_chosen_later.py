"""What somebody inside a guest has changed since a plan set it, or before."""

import pytest
from support import hosts
from support.hosts import cpus

from pinner.model.kinds import INSIDE
from pinner.model.plan.request import Request
from pinner.model.settings.inside import FlowQueue, GuestIrq, GuestIrqs, GuestQueue, GuestRfs, GuestRps
from pinner.model.states import GuestCpus
from pinner.planning import planner
from pinner.planning.placement import drifts, record

BOOT = "11111111-2222-3333-4444-555555555555"
GUEST = hosts.guest(1, 4, cpus("0-15"))
TOLD = GUEST.uuid, "g1", BOOT
ALL = {"guest_irq", "guest_rps", "guest_rfs"}
WITH = Request(remedies=("guest-irqs", "guest-rps", "guest-rfs"))


def host(irq, rps, flows):
    return hosts.snapshot(
        hosts.plain(16, 2),
        [GUEST],
        guest_irqs=(GuestIrqs(*TOLD, cpus("0-3"), (GuestIrq(27, "virtio0-input.0", "eth0", 2, 0, cpus(irq)),)),),
        guest_rps=(GuestRps(*TOLD, cpus("0-3"), (GuestQueue("eth0", 2, 0, cpus(rps)),)),),
        guest_rfs=(GuestRfs(*TOLD, flows, (FlowQueue("eth0", 2, 0, flows),)),),
    )


@pytest.mark.parametrize(
    ("now", "drifted", "cause"),
    [
        (host("3", "0-3", 4096), set(), ""),
        (host("1", "1", 32768), ALL, "guest"),
        (host("0-1", "0-3", 4096), {"guest_irq"}, "guest"),
        (host("0-3", "", 0), ALL, "unknown"),
    ],
    ids=["as placed", "moved", "one moved", "reset"],
)
def test_what_was_chosen_since_stays_and_what_is_free_again_does_not(now, drifted, cause):
    placement = placed(host("0-3", "", 0))
    for _ in range(2):
        plan, found = found_in(now, placement)
        assert {(drift.target.kind, drift.cause) for drift in found} == {(kind, cause) for kind in drifted}
        assert {change.target.kind for change in plan.changes if change.target.kind in INSIDE} == (
            ALL if cause == "unknown" else set()
        )
        if cause != "unknown":
            placement = record(plan, now, placement)


def test_a_drift_inside_a_guest_shows_what_it_has_and_what_it_got():
    _, found = found_in(host("1", "0-3", 4096), placed(host("0-3", "", 0)))
    (drift,) = found
    assert drift.states == (GuestCpus(cpus("1")), GuestCpus(cpus("3")))


def test_what_was_chosen_before_the_plan_is_no_drift():
    _, found = found_in(host("2", "0-3", 4096), placed(host("1", "0-3", 4096)))
    assert found == []


def test_what_could_not_be_set_is_no_drift_when_the_guest_chooses():
    before = host("0-3", "", 0)
    plan = planner.plan(before, "s1", WITH)
    placement = record(plan, before, None, unplaced={change.target.key for change in plan.changes})
    assert found_in(host("1", "1", 32768), placement)[1] == []


def placed(before):
    return record(planner.plan(before, "s1", WITH), before, None)


def found_in(now, placement):
    """The plan that would end the drift, and the drift inside guests."""
    plan = planner.plan_from_placement(now, "s2", WITH, placement)
    return plan, [drift for drift in drifts(plan, placement, now) if drift.target.kind in INSIDE]
