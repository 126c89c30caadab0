"""Energy preferences and resume latencies as changes of a plan, on a made-up host."""

from dataclasses import replace

import pytest
from support import hosts
from support.hosts import cpus

from pinner import codec
from pinner.model.errors import Refused
from pinner.model.guest.nova import NovaConf
from pinner.model.machine.topology import FrequencyDomain
from pinner.model.plan.request import Request
from pinner.model.settings.power import PERFORMANCE, SHALLOW, EnergyDomain, WakeLimit
from pinner.model.states import Governor, Word
from pinner.planning import admission, planner
from pinner.planning.admission import identified

OFFERED = ("default", "performance", "balance_performance", "balance_power", "power")
SAVING, FREE = Word("balance_power"), Word("0")
WITH = Request(remedies=("epp", "resume-latency"))


def energy(cpu, preference=SAVING, offered=OFFERED, governor="powersave"):
    return EnergyDomain(cpu, cpus(str(cpu)), preference, offered, governor)


# Housekeeping 0-1, emulators 2-3, vCPUs 4-15.
ENERGIES = tuple(map(energy, range(16)))
LIMITS = tuple(WakeLimit(cpu, FREE, 133) for cpu in range(16))


def host(energies=ENERGIES, limits=LIMITS, guests=None, **more):
    guests = [hosts.guest(1, 2, cpus("0-15"))] if guests is None else guests
    return hosts.snapshot(hosts.plain(16), guests, epp=energies, resume_latency=limits, **more)


def plan(taken, request=WITH):
    return planner.plan(taken, codec.content_hash(taken), request)


def changed(made, kind):
    named = (change.target.name for change in made.changes if change.target.kind == kind)
    return str(cpus(",".join(named) or ""))


def skipped(made):
    return {str(left.target): left.why for left in made.skipped}


def test_vcpus_and_emulators_get_speed_and_housekeeping_keeps_what_it_has():
    made = plan(host())
    assert (changed(made, "epp"), changed(made, "latency")) == ("2-15", "2-15")
    assert {change.after for change in made.changes if change.target.kind == "epp"} == {PERFORMANCE}
    assert {change.after for change in made.changes if change.target.kind == "latency"} == {SHALLOW}


def test_a_host_without_guests_saves():
    made = plan(host(guests=[]))
    assert (changed(made, "epp"), changed(made, "latency")) == ("", "")


def test_threads_of_qemu_that_stay_count():
    theirs = replace(hosts.guest(2, 1, cpus("1")), excluded=True)
    assert changed(plan(host(guests=[theirs])), "epp") == "1"


def test_the_fix_of_the_finding_changes_the_cpus_of_vcpus_alone():
    guest = hosts.guest(1, 2, cpus("4-7"))
    made = plan(host(guests=[guest]), Request(fix=("cpu-deep-idle",)))
    assert changed(made, "latency") == "4-7"
    assert changed(made, "epp") == ""


def test_a_preference_stays_where_it_could_not_be_given_or_restored():
    odd = (
        energy(4, PERFORMANCE),
        energy(5, offered=("default", "power")),
        energy(6, governor="performance"),
        energy(7, offered=()),
    )
    made = plan(host(odd))
    assert changed(made, "epp") == ""
    assert skipped(made) == {
        "energy preference of CPUs 5": "its driver offers default, power, and not performance",
        "energy preference of CPUs 6": "with the governor performance, drivers refuse balance_power, so no "
        "rollback could restore it",
        "energy preference of CPUs 7": "its driver offers no preference by name, and not performance",
    }


def test_the_preference_comes_before_the_governor_so_a_rollback_restores_it_last():
    domains = tuple(FrequencyDomain(cpu, cpus(str(cpu)), Governor("powersave")) for cpu in range(16))
    taken = host(governors=domains)
    made = plan(taken, Request(remedies=("governors", "epp")))
    kinds = [change.target.kind for change in made.changes if change.target.kind in ("epp", "governor")]
    assert kinds == ["epp"] * 14 + ["governor"] * 12
    assert not [each for each in made.warnings if "preference" in each]
    alone = plan(taken, Request(remedies=("governors",)))
    assert [each for each in alone.warnings if "preference" in each] == [
        "CPUs 4-15: the governor performance sets their energy preference to performance, which may stay after a "
        "rollback; with epp, the rollback restores it"
    ]


def test_a_stricter_limit_stays_and_a_cpu_without_deep_states_needs_none():
    limits = (
        WakeLimit(4, Word("n/a"), 133),
        WakeLimit(5, Word("20"), 133),
        WakeLimit(6, Word("100"), 133),
        WakeLimit(7, FREE, 49),
        WakeLimit(8, FREE, 50),
        WakeLimit(9, FREE, 0),
    )
    made = plan(host(limits=limits))
    assert changed(made, "latency") == "6,8"
    states = {want.target.name: str(want.state) for want in made.wanted if want.target.kind == "latency"}
    assert states == {"4": "n/a", "5": "20", "6": "49", "8": "49"}


MANAGED = {"dedicated": cpus("8"), "nova": NovaConf(("nova.conf",), dedicated="8", power_management=True)}
WHY = "Nova manages the power of CPUs 8 (cpu_power_management)"


def test_a_cpu_whose_power_nova_manages_is_left_to_nova():
    made = plan(host(**MANAGED))
    assert skipped(made) == {"energy preference of CPUs 8": WHY, "resume latency of CPU 8": WHY}


def permit(made, taken):
    known, ended = identified(made, taken)
    admission.require_permitted(known, taken, admission.Past(), migrate_memory=False)
    return ended


@pytest.mark.parametrize("request_", [WITH, Request(fix=("cpu-deep-idle",))], ids=["with", "fix"])
def test_the_agent_admits_the_planners_changes(request_):
    guests = [hosts.guest(1, 2, cpus("4-8")), replace(hosts.guest(2, 1, cpus("2")), excluded=True)]
    made = plan(host(guests=guests), request_)
    assert made.changes
    assert permit(made, host(guests=guests)) == frozenset()


@pytest.mark.parametrize("kind", ["iothread", "vhost"])
def test_the_agent_admits_what_qemus_own_threads_need(kind):
    theirs = hosts.guest(2, 1, cpus("4-5"), iothreads=1)
    thread = replace(theirs.iothreads[0].thread, affinity=cpus("1"))
    if kind == "vhost":
        theirs = replace(theirs, iothreads=(), vhost_threads=(thread,))
    else:
        theirs = replace(theirs, iothreads=(replace(theirs.iothreads[0], thread=thread, pin=cpus("1")),))
    taken = host(guests=[hosts.guest(1, 2, cpus("4-8")), replace(theirs, excluded=True)])
    made = plan(taken)
    assert "1" in {change.target.name for change in made.changes if change.target.kind == "epp"}
    assert permit(made, taken) == frozenset()


@pytest.mark.parametrize(
    ("kind", "more", "taken", "why"),
    [
        ("epp", {"after": SAVING}, host(), "a plan gives it the preference performance, and no other"),
        ("epp", {"target": ENERGIES[0].target}, host(), "it has no CPU of guests"),
        ("epp", {}, host(tuple(energy(cpu, offered=("power",)) for cpu in range(16))), "its driver offers power"),
        (
            "epp",
            {},
            host(tuple(energy(cpu, governor="performance") for cpu in range(16))),
            "drivers refuse",
        ),
        ("latency", {"after": FREE}, host(), "a plan gives it 49 us, and no other limit"),
        ("latency", {"target": LIMITS[0].target}, host(), "it is no CPU of guests"),
        (
            "latency",
            {},
            host(limits=tuple(WakeLimit(cpu, FREE, 20) for cpu in range(16))),
            "it has no idle state",
        ),
    ],
)
def test_the_agent_refuses_other_changes(kind, more, taken, why):
    made = plan(host())
    first = next(change for change in made.changes if change.target.kind == kind)
    with pytest.raises(Refused, match=why):
        permit(replace(made, changes=(replace(first, **more),)), taken)


@pytest.mark.parametrize("kind", ["epp", "latency"])
def test_the_agent_refuses_cpus_that_nova_manages(kind):
    (change,) = [each for each in plan(host()).changes if each.target.kind == kind and each.target.name == "8"]
    with pytest.raises(Refused, match="Nova manages the power of CPUs 8"):
        permit(replace(plan(host()), changes=(change,)), host(**MANAGED))
