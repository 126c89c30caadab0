"""Nova may take CPUs, or a guest, between a plan and its apply: it is asked again, and nothing is touched."""

from dataclasses import replace

import pytest
from support.fakes.in_memory_host import InMemoryHost, daemon, emulator, vcpu
from support.values import NOON, cpus, make_run

from pinner.apply import executor
from pinner.model.change import Target
from pinner.model.errors import Invalid, NovaConflict
from pinner.model.guest.nova import NovaGuest, NovaOwns, NovaSets
from pinner.model.plan.plan import Plan, Roles, Wanted
from pinner.model.plan.request import Request
from pinner.store.journal.journal import StoredJournal

PLACES = {emulator(): "1", vcpu(0): "2-7", vcpu(1): "2-7", daemon(500): "0"}
US = emulator().owner


@pytest.fixture
def host():
    host = InMemoryHost()
    for target in PLACES:
        host.add(target, "0-7")
    return host


@pytest.fixture
def journal(tmp_path):
    journal = StoredJournal(tmp_path)
    yield journal
    journal.close()


def the_plan(host: InMemoryHost, places: dict[Target, str], *, emulators: bool = False) -> Plan:
    made = host.plan(*(host.change(target, after) for target, after in places.items()))
    wanted = tuple(Wanted(target, cpus(after), "so") for target, after in places.items())
    roles = Roles(cpus("0"), cpus("1"), cpus("2-7"))
    return replace(made, wanted=wanted, roles=roles, request=Request(nova_emulators=emulators))


def apply(plan: Plan, host: InMemoryHost, journal: StoredJournal) -> str:
    return executor.apply(plan, make_run(), host, journal, lambda: NOON, lambda entry, total: None).state


@pytest.mark.fault(15)
@pytest.mark.parametrize(
    ("owns", "ours", "theirs", "both"),
    [
        (
            NovaOwns(NovaSets(dedicated=cpus("4-5"))),
            f"{vcpu(0)} on CPUs 2-7",
            "Nova's cpu_dedicated_set 4-5",
            "4-5",
        ),
        (
            NovaOwns(NovaSets(dedicated=cpus("0"))),
            f"{daemon(500)} on CPUs 0",
            "Nova's cpu_dedicated_set 0",
            "0",
        ),
        (
            NovaOwns(NovaSets(shared=cpus("0-5"))),
            f"{vcpu(0)} on CPUs 2-7",
            "Nova's cpu_shared_set 0-5",
            "6-7",
        ),
        (
            NovaOwns(guests=(NovaGuest("u2", "db", cpus("7"), floating=True),)),
            f"{vcpu(0)} on CPUs 2-7",
            "guest db, to which Nova dedicates CPUs 7",
            "7",
        ),
        (
            NovaOwns(guests=(NovaGuest(US, "g1", cpus("20"), floating=False),)),
            f"{emulator()} on CPUs 1",
            "guest g1, to which Nova dedicates CPUs 20",
            "20",
        ),
    ],
    ids=["set", "housekeeping", "shared set", "another guest", "the guest itself was resized"],
)
def test_cpus_that_became_novas_after_the_plan_stop_it(host, journal, owns, ours, theirs, both):
    plan = the_plan(host, PLACES)
    host.novas = owns
    with pytest.raises(NovaConflict) as refused:
        apply(plan, host, journal)
    assert refused.value.details == {"ours": ours, "theirs": theirs, "cpus": both}
    assert (host.writes, journal.interrupted()) == ([], None)


@pytest.mark.fault(15)
def test_a_plan_beside_novas_cpus_is_applied(host, journal):
    plan = the_plan(host, PLACES)
    host.novas = NovaOwns(NovaSets(cpus("20-30"), cpus("2-7")), (NovaGuest("u2", "db", cpus("21"), floating=True),))
    assert apply(plan, host, journal) == "applied"


def test_a_release_may_use_cpus_that_nova_dedicates(host, journal):
    """They are the masks that Nova gave the guest before pinner placed it."""
    plan = replace(the_plan(host, {vcpu(0): "0-5", vcpu(1): "0-5"}), purpose="release")
    host.novas = NovaOwns(NovaSets(cpus("4-5")))
    assert apply(plan, host, journal) == "applied"


@pytest.mark.parametrize(
    ("asked", "floating", "applied"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_emulator_threads_of_a_guest_that_nova_pinned(host, journal, asked, floating, applied):
    plan = the_plan(host, {emulator(): "1"}, emulators=asked)
    host.novas = NovaOwns(guests=(NovaGuest(US, "g1", cpus("20"), floating=floating),))
    if applied:
        assert apply(plan, host, journal) == "applied"
    else:
        with pytest.raises(NovaConflict):
            apply(plan, host, journal)


@pytest.mark.parametrize("cells", [False, True], ids=["dedicated CPUs", "cells"])
def test_a_definition_that_nova_pinned_is_not_written(host, journal, cells):
    """Nova's pins are read from the definition."""
    host.definitions[US] = "<cputune/>"
    if cells:
        host.cells = {US}
    else:
        host.novas = NovaOwns(guests=(NovaGuest(US, "g1", cpus("20"), floating=True),))
    plan, run = the_plan(host, {emulator(): "1"}, emulators=True), make_run(persist=True)
    with pytest.raises(Invalid, match="persist"):
        executor.apply(plan, run, host, journal, lambda: NOON, lambda entry, total: None)
    assert host.writes == []


@pytest.mark.fault(15)
def test_a_rollback_is_not_refused_for_cpus_that_became_novas(host, journal):
    """It restores what was there before, whoever owns the CPUs now."""
    before = host.kernel()
    assert apply(the_plan(host, PLACES), host, journal) == "applied"
    assert host.kernel() != before
    host.novas = NovaOwns(NovaSets(dedicated=cpus("0-7")), (NovaGuest(US, "g1", cpus("2-3"), floating=False),))
    run = make_run("run-2", kind="rollback", undoes="run-1")
    assert executor.rollback(run, host, journal, lambda: NOON, lambda entry, total: None).state == "rolled_back"
    assert host.kernel() == before
