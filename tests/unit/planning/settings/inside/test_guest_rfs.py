"""RFS inside guests as changes of a plan, on a made-up host."""

from dataclasses import replace

import pytest
from support import hosts
from support.hosts import cpus

from pinner import codec
from pinner.model.plan.request import Request
from pinner.model.settings.inside import FLOWS, FlowQueue, GuestRfs, GuestRps
from pinner.model.states import Number
from pinner.planning import planner
from pinner.planning.settings.inside.misfits import misfits
from pinner.render import shell

WITH = Request(remedies=("guest-rfs",))
BOOT = "11111111-2222-3333-4444-555555555555"
GUESTS = [hosts.guest(number, 4, cpus("0-15")) for number in (1, 2)]
OFF, CHOSEN = FlowQueue("eth0", 2, 0, 0), FlowQueue("eth0", 2, 1, 512)
RFS = GuestRfs(GUESTS[0].uuid, "g1", BOOT, 0, (OFF, CHOSEN))
SILENT = GuestRfs(GUESTS[1].uuid, "g2", unread="it has no agent")


def host(*found):
    return hosts.snapshot(hosts.plain(16, 2), GUESTS, guest_rfs=found, guest_rps=())


def plan(taken, request=WITH):
    return planner.plan(taken, codec.content_hash(taken), request)


def changed(made):
    return {str(change.target): str(change.after) for change in made.changes if change.target.kind == "guest_rfs"}


def test_the_documented_numbers_are_set_and_what_the_owner_has_chosen_stays():
    """The documented case: rps_flow_cnt 4096 and rps_sock_flow_entries 4096, undone by 0."""
    made = plan(host(RFS, SILENT))
    assert changed(made) == {"guest g1 rps_sock_flow_entries": "4096", "guest g1 eth0 rx-0 rps_flow_cnt": "4096"}
    assert "# inside the guest: sysctl -w net.core.rps_sock_flow_entries=4096" in shell.render(made)
    assert [left.why for left in made.skipped if "RFS" in left.why] == ["its RFS stays: it has no agent"]
    assert [text for text in made.warnings if "inside" in text] == [
        "guest g1: this changes the inside of the guest, until the guest restarts"
    ]


def test_a_guest_whose_kernel_has_another_number_keeps_it():
    assert changed(plan(host(replace(RFS, entries=32768)))) == {"guest g1 eth0 rx-0 rps_flow_cnt": "4096"}


def test_a_guest_without_such_a_card_needs_nothing():
    assert changed(plan(host(replace(RFS, queues=())))) == {}


def test_two_settings_of_a_guest_are_one_warning():
    rps = GuestRps(RFS.guest, "g1", BOOT, cpus("0-3"), ())
    made = plan(replace(host(RFS), guest_rps=(rps,)), Request(remedies=("guest-rps", "guest-rfs")))
    assert len([text for text in made.warnings if "inside of the guest" in text]) == 1


@pytest.mark.parametrize(
    ("target", "before", "after", "why"),
    [
        (0, 0, 8192, "by what the guest says now, a plan gives it '4096', not '8192'"),
        (2, 512, 4096, "it has '512' now, and keeps that"),
    ],
)
def test_the_agent_makes_no_other_changes(target, before, after, why):
    made = plan(host(RFS))
    change = next(change for change in made.changes if change.target.kind == "guest_rfs")
    forged = replace(change, target=[*RFS.states][target], before=Number(before), after=Number(after))
    assert misfits(replace(made, changes=(forged,)), host(RFS)) == {forged.target: why}
    assert change.after == FLOWS
