"""The banned CPUs of irqbalance as changes of a plan, on a made-up host."""

from dataclasses import replace

import pytest
from support import hosts
from support.hosts import cpus
from support.made_up.readings import placed, reading

from pinner import codec
from pinner.model.errors import Refused
from pinner.model.machine.interrupts import Balancer, DeviceIrq, DeviceIrqs
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning import admission, planner
from pinner.planning.admission import identified
from pinner.planning.placement import drifts, record
from pinner.render import shell
from pinner.service.hosts.checker import HostChecker

WITH = Request(housekeeping="0-3", emulator="4-5", remedies=("irqbalance",))
RUNNING = Balancer(812, "--foreground", cpus(""), 77, banned_now=cpus("2"))


def host(*running, **more):
    """16 CPUs: 0-3 for the host, the others for guests."""
    more.setdefault("irqs", DeviceIrqs((), running))
    return hosts.snapshot(hosts.plain(16), [hosts.guest(1, 2, cpus("0-15"))], irqbalance=running, **more)


def plan(taken, request=WITH):
    return planner.plan(taken, codec.content_hash(taken), request)


def changed(made):
    return {str(each.target): str(each.after) for each in made.changes if each.target.kind == "irqbalance"}


def after(taken, made):
    given = {each.target.key: each.after for each in made.changes}
    found = (replace(each, banned_now=given.get(each.target.key, each.banned_now)) for each in taken.irqbalance)
    return replace(hosts.applied(taken, made), irqbalance=tuple(found))


def test_irqbalance_bans_the_cpus_of_guests_too_and_a_second_plan_changes_nothing():
    taken = host(RUNNING)
    made = plan(taken)
    theirs = made.roles.vcpu | made.roles.emulator
    assert changed(made) == {"irqbalance (812)": str(theirs | cpus("2"))}
    assert plan(after(taken, made)).changes == ()
    assert codec.load(Plan, codec.dump(made)) == made
    assert codec.load(Snapshot, codec.dump(taken)) == taken


def test_the_change_comes_after_those_of_interrupts_which_irqbalance_would_move_meanwhile():
    queues = tuple(DeviceIrq(24 + n, f"ens1-rx-{n}", "0000:3b:00.0", cpus("9")) for n in range(2))
    taken = host(RUNNING, irqs=DeviceIrqs(queues, (RUNNING,)))
    made = plan(taken, replace(WITH, remedies=("irqs", "irqbalance")))
    assert [each.target.kind for each in made.changes][:3] == ["irq", "irq", "irqbalance"]


def test_the_command_for_no_banned_cpus_is_null():
    none = replace(RUNNING, banned_now=cpus(""))
    assert "\n# printf 'settings cpus NULL' | socat" in shell.render(plan(host(none)))


def test_an_irqbalance_that_does_not_tell_is_left_out_with_the_line_for_its_configuration():
    made = plan(host(replace(RUNNING, banned_now=None)))
    assert changed(made) == {}
    (left,) = [each for each in made.skipped if each.target.kind == "irqbalance"]
    assert "set IRQBALANCE_BANNED_CPULIST in its configuration" in left.why


def test_some_cpu_is_left_for_interrupts():
    made = plan(host(replace(RUNNING, banned_now=cpus("0-3"))))
    assert changed(made) == {}
    assert [each.why for each in made.skipped if each.target.kind == "irqbalance"] == [
        "no CPU would be left for interrupts"
    ]


def test_a_restarted_irqbalance_has_forgotten_them_and_a_policy_sets_them_again():
    taken = host(RUNNING)
    made = plan(taken)
    placement, now = record(made, taken, None), after(taken, made)
    assert planner.plan_from_placement(now, "s2", WITH, placement).changes == ()
    restarted = replace(now, irqbalance=(Balancer(900, "", cpus(""), 99, banned_now=cpus("")),))
    (drift,) = drifts(planner.plan_from_placement(restarted, "s2", WITH, placement), placement, restarted)
    assert (str(drift.target), drift.cause, tuple(map(str, drift.states))) == (
        "irqbalance (900)",
        "restarted",
        ("", "4-15"),
    )
    # While it does not run, the host is compared with its policy, too.
    stopped = replace(now, irqbalance=())
    meanwhile = record(planner.plan_from_placement(stopped, "s3", WITH, placement), stopped, placement)
    (drift,) = drifts(planner.plan_from_placement(restarted, "s2", WITH, meanwhile), meanwhile, restarted)
    assert drift.cause == "restarted"
    other = replace(now, irqbalance=(replace(RUNNING, banned_now=cpus("1")),))
    (drift,) = drifts(planner.plan_from_placement(other, "s2", WITH, placement), placement, other)
    assert (drift.cause, tuple(map(str, drift.states))) == ("unknown", ("1", "1,4-15"))


def test_what_it_says_counts_more_than_its_environment():
    """In the warning of a plan with interrupts, and in the check."""
    for now, banned, is_open in (("4-15", "", False), ("", "4-15", True)):
        balancer = replace(RUNNING, banned=cpus(banned), banned_now=cpus(now))
        made = plan(host(balancer), replace(WITH, remedies=("irqs",)))
        assert any("irqbalance (812)" in each for each in made.warnings) is is_open
        made = plan(host(balancer), replace(WITH, remedies=("irqs", "irqbalance")))
        assert not any("irqbalance (812)" in each for each in made.warnings)
        seen = reading(irqbalance=(balancer,), guests=[placed("4-7", "4-7")])
        found = [each for each in HostChecker().check(seen).findings if each.code == "irqbalance-unbanned"]
        assert [each.is_fixable for each in found] == [True] * is_open
    silent = reading(irqbalance=(replace(RUNNING, banned_now=None),), guests=[placed("4-7", "4-7")])
    (found,) = [each for each in HostChecker().check(silent).findings if each.code == "irqbalance-unbanned"]
    assert not found.is_fixable


def permit(made, taken):
    known, ended = identified(made, taken)
    admission.require_permitted(known, taken, admission.Past(), migrate_memory=False)
    return ended


@pytest.mark.parametrize(
    ("before", "banned", "request_", "why"),
    [
        ("2", "2,4-15", Request(), "does not ask for the banned CPUs of irqbalance"),
        ("2", "4-15", WITH, "CPUs 2 were banned before, and a plan only adds CPUs"),
        ("2", "1-2,4-15", WITH, "CPUs 1 are not for guests"),
        ("0-3", "0-15", WITH, "no CPU would be left for interrupts"),
    ],
)
def test_the_agent_refuses_other_changes(before, banned, request_, why):
    made = plan(host(RUNNING))
    (change,) = [each for each in made.changes if each.target.kind == "irqbalance"]
    forged = replace(change, before=cpus(before), after=cpus(banned))
    with pytest.raises(Refused, match=why):
        permit(replace(made, changes=(forged,), request=request_), host(RUNNING))


def test_a_host_on_which_no_irqbalance_runs_has_a_plan_of_everything_else():
    assert plan(host()).changes == plan(host(), replace(WITH, remedies=())).changes
