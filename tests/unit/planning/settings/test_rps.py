"""Receive packet steering as changes of a plan, on a made-up host."""

from dataclasses import replace

import pytest
from support import hosts
from support.hosts import cpus

from pinner import codec
from pinner.model.errors import Refused
from pinner.model.plan.request import Request
from pinner.model.settings.cards import RpsQueue
from pinner.planning import admission, planner
from pinner.planning.admission import identified
from pinner.planning.placement import drifts, record
from pinner.render import shell, text

WITH = Request(remedies=("rps",))
QUEUES = (
    RpsQueue("ens1", 2, 0, cpus("0-15")),
    RpsQueue("ens1", 2, 1, cpus("4-7")),
    RpsQueue("ens1", 2, 2, cpus("")),
    RpsQueue("ens2", 3, 0, cpus("1")),
)


def host(queues=QUEUES):
    """Housekeeping 0-1, emulators 2-3, vCPUs 4-15."""
    return hosts.snapshot(hosts.plain(16), [hosts.guest(1, 2, cpus("0-15"))], rps=queues)


def plan(taken, request=WITH):
    return planner.plan(taken, codec.content_hash(taken), request)


def changed(made):
    return {str(each.target): str(each.after) for each in made.changes if each.target.kind == "rps"}


def after(taken, made):
    given = {each.target.key: each.after for each in made.changes}
    moved = tuple(replace(each, cpus=given.get(each.target.key, each.cpus)) for each in taken.rps)
    return replace(hosts.applied(taken, made), rps=moved)


def test_the_cpus_of_guests_leave_rps_and_a_second_plan_changes_nothing():
    made = plan(host())
    assert changed(made) == {"rps ens1 rx-0": "0-1", "rps ens1 rx-1": ""}
    assert plan(after(host(), made)).changes == ()


def test_a_queue_without_cpus_of_guests_is_in_place():
    reasons = [want.reason for want in plan(host()).wanted if want.target.kind == "rps"]
    assert reasons[2] == "in place"
    assert reasons[0] == "takes the CPUs of guests (2-15) out of RPS"


def test_the_commands_and_the_texts_say_so():
    made = plan(host())
    script = shell.render(made)
    assert "\necho 00000003 > /sys/class/net/ens1/queues/rx-0/rps_cpus\n" in script
    assert "\necho 00000000 > /sys/class/net/ens1/queues/rx-1/rps_cpus\n" in script
    assert "\n# echo 000000f0 > /sys/class/net/ens1/queues/rx-1/rps_cpus\n" in script
    assert "rps ens1 rx-1: 4-7 -> none (a setting of the kernel; takes the CPUs of guests (4-7) out" in text.render(
        made
    )


def test_a_drift_shows_what_another_program_set():
    made = plan(host())
    placement, placed = record(made, host(), None), after(host(), made)
    seen = replace(placed, rps=(replace(placed.rps[0], cpus=cpus("0,9")), *placed.rps[1:]))
    again = planner.plan_from_placement(seen, "s2", WITH, placement)
    assert changed(again) == {"rps ens1 rx-0": "0"}
    (drift,) = drifts(again, placement, seen)
    assert tuple(map(str, drift.states)) == ("0,9", "0")


def permit(made, taken):
    known, ended = identified(made, taken)
    admission.require_permitted(known, taken, admission.Past(), migrate_memory=False)
    return ended


@pytest.mark.parametrize(
    ("cpus_after", "request_", "why"),
    [
        ("0-1", Request(), "does not ask for RPS"),
        ("0-4", WITH, "CPUs 2-4 are for guests"),
    ],
)
def test_the_agent_refuses_other_changes(cpus_after, request_, why):
    made = plan(host())
    forged = replace(made.changes[0], after=cpus(cpus_after))
    with pytest.raises(Refused, match=why):
        permit(replace(made, changes=(forged,), request=request_), host())


def test_the_agent_adds_no_cpu_to_rps():
    made = plan(host((RpsQueue("ens1", 2, 0, cpus("0,4")),)))
    forged = replace(made.changes[0], after=cpus("0-1"))
    with pytest.raises(Refused, match="CPUs 1 were not among its CPUs before"):
        permit(replace(made, changes=(forged,)), host((RpsQueue("ens1", 2, 0, cpus("0,4")),)))
