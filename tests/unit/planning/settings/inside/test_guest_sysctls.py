"""UDP buffers inside guests as changes of a plan, on a made-up host."""

from dataclasses import replace

import pytest
from support import hosts
from support.hosts import cpus

from pinner import codec
from pinner.model.plan.request import Request
from pinner.model.settings.inside import BUFFERS, GuestSysctls
from pinner.model.states import Number
from pinner.planning import planner
from pinner.planning.settings.inside.misfits import misfits

MAX, DEFAULT = "net.core.rmem_max", "net.core.rmem_default"
GUEST = hosts.guest(1, 1, cpus("0-15"))
SMALL = {MAX: 212_992, DEFAULT: 212_992}


def sysctls(lost=0, **values):
    return GuestSysctls(GUEST.uuid, "g1", "11111111-2222-3333-4444-555555555555", SMALL | values, lost)


def plan(found):
    taken = hosts.snapshot(hosts.plain(16, 2), [GUEST], guest_sysctls=(found,))
    return planner.plan(taken, codec.content_hash(taken), Request(remedies=("guest-sysctls",))), taken


def changed(found):
    made, _ = plan(found)
    return {
        str(change.target): (str(change.after), change.reason)
        for change in made.changes
        if change.target.kind == "guest_sysctl"
    }


ASKED = {"guest g1 net.core.rmem_max": ("26214400", "programs may ask for receive buffers that hold a burst")}


def test_programs_of_a_guest_may_ask_for_large_buffers():
    assert changed(sysctls()) == ASKED


def test_all_programs_get_larger_ones_where_packets_were_lost():
    assert changed(sysctls(lost=7)) == ASKED | {
        "guest g1 net.core.rmem_default": ("4194304", "7 UDP packets found a receive buffer full")
    }


def test_larger_values_stay():
    assert changed(sysctls(lost=7, **{MAX: 1 << 30, DEFAULT: 1 << 23})) == {}


@pytest.mark.parametrize(
    ("key", "after", "why"),
    [
        (MAX, 1 << 30, "by what the guest says now, a plan gives it '26214400', not '1073741824'"),
        (DEFAULT, BUFFERS[DEFAULT], "it has '212992' now, and keeps that"),
    ],
)
def test_the_agent_makes_no_other_changes(key, after, why):
    made, taken = plan(sysctls())
    change = next(change for change in made.changes if change.target.kind == "guest_sysctl")
    forged = replace(change, target=sysctls().target(key), after=Number(after))
    assert misfits(replace(made, changes=(forged,)), taken) == {forged.target: why}
