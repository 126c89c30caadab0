"""Frequency governors as changes of a plan, on a made-up host."""

from dataclasses import replace

import pytest
from support import hosts
from support.hosts import cpus

from pinner import codec
from pinner.model.errors import Refused
from pinner.model.guest.nova import NovaConf
from pinner.model.machine.topology import FrequencyDomain
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.model.states import Governor, Number
from pinner.planning import admission, planner
from pinner.planning.admission import identified

WITH = Request(remedies=("governors",))


def domain(mask, governor="powersave"):
    return FrequencyDomain(cpus(mask).lowest, cpus(mask), Governor(governor))


# Housekeeping 0-1, emulators 2-3, vCPUs 4-15.
DOMAINS = (domain("0-1"), domain("2-3"), domain("4-7"), domain("8"), domain("9", "schedutil"), domain("10-15"))


def host(domains=DOMAINS, **more):
    return hosts.snapshot(hosts.plain(16), [hosts.guest(1, 2, cpus("0-15"))], governors=domains, **more)


def plan(taken, request=WITH):
    return planner.plan(taken, codec.content_hash(taken), request)


def changed(made):
    return {str(each.target): str(each.after) for each in made.changes if each.target.kind == "governor"}


def after(taken, made):
    given = {each.target.key: each.after for each in made.changes}
    moved = tuple(replace(each, governor=given.get(each.target.key, each.governor)) for each in taken.governors)
    return replace(hosts.applied(taken, made), governors=moved)


def test_slow_cpus_of_vcpus_become_fast_and_a_second_plan_changes_nothing():
    made = plan(host())
    assert changed(made) == {
        "governor of CPUs 4-7": "performance",
        "governor of CPUs 8": "performance",
        "governor of CPUs 10-15": "performance",
    }
    assert plan(after(host(), made)).changes == ()
    assert codec.load(Plan, codec.dump(made)) == made
    assert codec.load(Snapshot, codec.dump(host())) == host()


def test_a_host_without_guests_and_a_pool_that_no_vcpu_uses_stay_slow():
    empty = hosts.snapshot(hosts.plain(16), [], governors=DOMAINS)
    assert changed(plan(empty)) == {}
    alone = hosts.snapshot(hosts.plain(16, isolated="8-15"), [hosts.guest(1, 1, cpus("0-7"))], governors=DOMAINS)
    assert "governor of CPUs 4-7" not in changed(plan(alone, replace(WITH, strategy="isolated")))


def test_vcpus_that_another_owner_has_placed_count():
    theirs = replace(hosts.guest(2, 1, cpus("2")), excluded=True)
    taken = hosts.snapshot(hosts.plain(16), [theirs], governors=DOMAINS)
    assert changed(plan(taken)) == {"governor of CPUs 2-3": "performance"}


@pytest.mark.parametrize("strategy", ["cpu_state", "governor"])
def test_a_cpu_whose_power_nova_manages_is_left_to_nova(strategy):
    conf = NovaConf(("nova.conf",), dedicated="0,8-9", power_management=True, power_strategy=strategy)
    taken = host((domain("0"), domain("8"), domain("9", "performance")), dedicated=cpus("0,8-9"), nova=conf)
    made = plan(taken, Request(fix=("cpu-slow-governor",)))
    # Nova never changes CPU 0.
    assert changed(made) == {"governor of CPUs 0": "performance"}
    assert [(str(left.target), left.why) for left in made.skipped] == [
        ("governor of CPUs 8", "Nova manages the power of CPUs 8 (cpu_power_management)")
    ]
    without = replace(taken, nova=replace(conf, power_management=False))
    assert len(changed(plan(without, Request(fix=("cpu-slow-governor",))))) == 2


def test_a_plan_says_which_tunables_a_rollback_forgets():
    made = plan(host((domain("4-7", "ondemand"), domain("8-15"))))
    assert [each for each in made.warnings if "tunables" in each] == [
        "governor of CPUs 4-7: a rollback restores ondemand with the kernel's defaults for its tunables"
    ]


def permit(made, taken):
    known, ended = identified(made, taken)
    admission.require_permitted(known, taken, admission.Past(), migrate_memory=False)
    return ended


@pytest.mark.parametrize("request_", [WITH, Request(fix=("cpu-slow-governor",))], ids=["with", "fix"])
def test_the_agent_admits_the_planners_changes_and_skips_cpus_that_are_others_now(request_):
    guests = [replace(hosts.guest(1, 2, cpus("4-8"))), replace(hosts.guest(2, 1, cpus("2")), excluded=True)]
    taken = hosts.snapshot(hosts.plain(16), guests, governors=DOMAINS)
    made = plan(taken, request_)
    assert "governor of CPUs 4-7" in changed(made)
    assert permit(made, taken) == frozenset()
    other = tuple(domain("4-8") if each.number == 4 else each for each in DOMAINS)
    assert {str(target) for target in permit(made, replace(taken, governors=other))} == {"governor of CPUs 4-7"}


MANAGED = {"dedicated": cpus("8"), "nova": NovaConf(("nova.conf",), dedicated="8", power_management=True)}


@pytest.mark.parametrize(
    ("change", "more", "why"),
    [
        ({}, {"request": Request()}, "does not ask for governors"),
        ({"after": Governor("powersave")}, {}, "a plan gives it the governor performance, and no other"),
        ({"after": Governor("userspace")}, {}, "a plan gives it the governor performance, and no other"),
        ({"before": Governor("schedutil")}, {}, "it has the governor schedutil, which stays"),
        ({"target": DOMAINS[0].target}, {}, "it has no CPU of guests"),
        ({"after": Number(1)}, {}, "of this form"),
        ({"after": cpus("1")}, {}, "of this form"),
    ],
)
def test_the_agent_refuses_other_changes(change, more, why):
    made = plan(host())
    first = next(each for each in made.changes if each.target.kind == "governor")
    with pytest.raises(Refused, match=why):
        permit(replace(made, changes=(replace(first, **change),), **more), host())


def test_the_agent_refuses_a_cpu_that_nova_manages_and_roles_that_a_plan_makes_up():
    made = plan(host())
    (eight,) = [each for each in made.changes if each.target.part == 8]
    with pytest.raises(Refused, match="Nova manages the power of CPUs 8"):
        permit(replace(made, changes=(eight,)), host(**MANAGED))
    cured = plan(hosts.snapshot(hosts.plain(16), [hosts.guest(1, 1, cpus("8"))], governors=DOMAINS), WITH)
    forged = replace(
        cured,
        request=Request(fix=("cpu-slow-governor",)),
        roles=replace(cured.roles, vcpu=cpus("0-15")),
        changes=(replace(eight, target=DOMAINS[0].target),),
    )
    with pytest.raises(Refused, match="it has no CPU of guests"):
        permit(forged, host())


def test_a_host_without_frequency_domains_has_a_plan_of_everything_else():
    made = plan(host(()))
    assert made.changes
    assert changed(made) == {}
