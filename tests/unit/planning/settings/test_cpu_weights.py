"""The CPU weight of the guests as a change of a plan, on a made-up host."""

from dataclasses import replace

import pytest
from support import hosts
from support.hosts import cpus
from support.made_up.checks.check_cases_cpus import beside
from support.made_up.readings import findings
from support.values import MEMBER

from pinner import codec
from pinner.model.errors import Refused
from pinner.model.guest.guest import Cgroup
from pinner.model.plan.request import Request
from pinner.model.settings.cpu_weights import DEFAULT, RAISED, SLICE, WEIGHT, weight_target
from pinner.model.snapshot import Snapshot
from pinner.model.states import Number
from pinner.planning import admission, planner
from pinner.planning.admission import identified
from pinner.planning.placement import drifts, record
from pinner.render import shell, text

WITH = Request(remedies=("cpu-weights",))
FIX = Request(fix=("host-delays-vcpus",))


def host(weight=100, top=None, guests=None, **more):
    known = {} if weight is None else {SLICE: weight}
    guests = [hosts.guest(1, 2, cpus("0-15"))] if guests is None else guests
    return hosts.snapshot(top or hosts.plain(16), guests, cpu_weights=known, **more)


def plan(taken, request=WITH):
    return planner.plan(taken, codec.content_hash(taken), request)


def in_slice(number, name):
    return hosts.guest(number, 2, cpus("0-15"), cgroups=(Cgroup(name, MEMBER),))


def changed(made):
    return [(each.before, each.after) for each in made.changes if each.target == WEIGHT]


def why_not(made):
    return [left.why for left in made.skipped if left.target == WEIGHT]


def test_the_guests_get_ten_times_the_weight_and_a_second_plan_changes_nothing():
    made = plan(host())
    assert changed(made) == [(DEFAULT, RAISED)]
    assert changed(plan(host(), Request())) == []
    assert plan(replace(hosts.applied(host(), made), cpu_weights={SLICE: 1000})).changes == ()
    assert codec.load(Snapshot, codec.dump(host())) == host()


@pytest.mark.parametrize(
    ("taken", "why"),
    [
        (host(None), "systemd has no machine.slice with a CPU weight on this host"),
        (host(300), "its weight is 300, which somebody has set"),
        (host(50), "its weight is 50, which somebody has set"),
        (
            host(guests=[in_slice(1, "user.slice")]),
            "guest g1 is in user.slice, not in machine.slice, and would wait longer",
        ),
        (
            host(guests=[in_slice(1, SLICE), in_slice(2, "production.slice")]),
            "guest g2 is in production.slice, not in machine.slice, and would wait longer",
        ),
        (host(guests=[replace(hosts.guest(1, 1, cpus("0-15")), excluded=True)]), "no CPU without vCPUs"),
    ],
    ids=["no slice", "higher", "lower", "another slice", "two slices", "no housekeeping"],
)
def test_a_weight_that_would_do_harm_or_is_somebodys_stays(taken, why):
    made = plan(taken)
    assert changed(made) == []
    (found,) = why_not(made)
    assert why in found


def test_a_higher_weight_and_a_host_without_guests_need_no_word():
    for taken in (host(5000), host(guests=[])):
        made = plan(taken)
        assert (changed(made), why_not(made)) == ([], [])


@pytest.mark.parametrize("isolation", ["boot", "live"])
def test_guests_on_isolated_cpus_need_no_weight(isolation):
    scopes = (Cgroup(SLICE, MEMBER), Cgroup(f"{SLICE}/g1.scope", MEMBER))
    alone = hosts.guest(1, 1, cpus("0-15"), cgroups=scopes)
    top = hosts.plain(16, isolated="8-15" if isolation == "boot" else "")
    made = plan(host(top=top, guests=[alone]), replace(WITH, strategy="isolated", isolation=isolation))
    assert [each for each in made.changes if each.target.kind == "vcpu"]
    assert changed(made) == []
    assert why_not(made) == ["vCPUs share no CPU with processes of the host"]


def test_the_commands_and_the_texts_say_so():
    script = shell.render(plan(host()))
    assert "\nsystemctl set-property --runtime machine.slice CPUWeight=1000\n" in script
    assert (
        "\n# systemctl set-property --runtime machine.slice CPUWeight=\n# rm -f /run/systemd/system.control/" in script
    )
    assert "weight machine.slice: 100 -> 1000 (a setting of the kernel; " in text.render(plan(host()))


def test_a_drift_shows_that_the_weight_was_unset_and_another_weight_stays():
    made = plan(host())
    placement, placed = record(made, host(), None), hosts.applied(host(), made)
    for weight, expected in ((100, [("100", "1000")]), (300, [])):
        seen = replace(placed, cpu_weights={SLICE: weight})
        again = planner.plan_from_placement(seen, "s2", WITH, placement)
        found = drifts(again, placement, seen)
        assert [tuple(map(str, drift.states)) for drift in found if drift.target == WEIGHT] == expected


def permit(made, taken):
    known, ended = identified(made, taken)
    admission.require_permitted(known, taken, admission.Past(), migrate_memory=False)
    return ended


@pytest.mark.parametrize("request_", [WITH, FIX], ids=["with", "fix"])
def test_the_agent_admits_the_planners_change(request_):
    taken = host(guests=[hosts.guest(1, 2, cpus("4-15"))])
    made = plan(taken, request_)
    assert changed(made) == [(DEFAULT, RAISED)]
    assert permit(made, taken) == frozenset()
    assert permit(made, replace(taken, cpu_weights={})) == {WEIGHT}


@pytest.mark.parametrize(
    ("change", "more", "why"),
    [
        ({}, {"request": Request()}, "does not ask for CPU weights"),
        ({"after": Number(10_000)}, {}, "a plan gives it the weight 1000, and no other"),
        ({"before": Number(300)}, {}, "its weight is 300, which somebody has set"),
        ({"after": cpus("1")}, {}, "of this form"),
    ],
)
def test_the_agent_refuses_other_changes(change, more, why):
    made = plan(host())
    (weight,) = [each for each in made.changes if each.target == WEIGHT]
    with pytest.raises(Refused, match=why):
        permit(replace(made, changes=(replace(weight, **change),), **more), host())


def test_the_agent_counts_only_the_vcpus_that_the_plan_moves():
    """A plan may say that the guests are placed, and not place them."""
    made = plan(host())
    (weight,) = [each for each in made.changes if each.target == WEIGHT]
    with pytest.raises(Refused, match="no CPU without vCPUs"):
        permit(replace(made, changes=(weight,)), host(guests=[hosts.guest(1, 2, cpus("0-15"))]))


def test_another_slice_is_no_target():
    made = plan(host())
    (weight,) = [each for each in made.changes if each.target == WEIGHT]
    other = replace(weight, target=weight_target("system.slice"))
    assert permit(replace(made, changes=(other,)), host()) == {other.target}


def test_a_finding_says_whether_the_weight_would_help():
    def found(reading):
        return next(each for each in findings(reading) if each.code == "host-delays-vcpus")

    cured = found(beside(1000))
    assert "take 200 % of a CPU on CPUs 4-7, where 4 vCPUs wait" in cured.message
    assert cured.is_fixable
    raised = beside(1000)
    raised = replace(raised, snapshot=replace(raised.snapshot, cpu_weights={SLICE: 1000}))
    assert not found(raised).is_fixable
    assert [remedy.line for remedy in found(raised).remedies] == []
