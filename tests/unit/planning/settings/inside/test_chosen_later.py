"""What somebody inside a guest has changed since a plan set it."""

import pytest
from support import hosts
from support.hosts import cpus

from pinner.model.plan.request import Request
from pinner.model.settings.inside import FlowQueue, GuestIrq, GuestIrqs, GuestQueue, GuestRfs, GuestRps
from pinner.planning import planner
from pinner.planning.placement import drifts, record

BOOT = "11111111-2222-3333-4444-555555555555"
GUEST = hosts.guest(1, 4, cpus("0-15"))
INSIDE = GUEST.uuid, "g1", BOOT
WITH = Request(remedies=("guest-irqs", "guest-rps", "guest-rfs"))


def host(irq, rps, flows):
    return hosts.snapshot(
        hosts.plain(16, 2),
        [GUEST],
        guest_irqs=(GuestIrqs(*INSIDE, cpus("0-3"), (GuestIrq(27, "virtio0-input.0", "eth0", 2, 0, cpus(irq)),)),),
        guest_rps=(GuestRps(*INSIDE, cpus("0-3"), (GuestQueue("eth0", 2, 0, cpus(rps)),)),),
        guest_rfs=(GuestRfs(*INSIDE, flows, (FlowQueue("eth0", 2, 0, flows),)),),
    )


@pytest.mark.parametrize(
    ("now", "drifted"),
    [
        (host("3", "0-3", 4096), set()),
        (host("1", "1", 32768), set()),
        (host("0-1", "0-2", 1), set()),
        (host("0-3", "", 0), {"guest_irq", "guest_rps", "guest_rfs"}),
    ],
    ids=["as placed", "moved", "more", "reset"],
)
def test_what_was_chosen_since_is_no_drift_and_what_is_free_again_is(now, drifted):
    before = host("0-3", "", 0)
    placement = record(planner.plan(before, "s1", WITH), before, None)
    again = planner.plan_from_placement(now, "s2", WITH, placement)
    found = [drift for drift in drifts(again, placement, now) if drift.target.kind.startswith("guest_")]
    assert {(drift.target.kind, drift.cause) for drift in found} == {(kind, "unknown") for kind in drifted}
