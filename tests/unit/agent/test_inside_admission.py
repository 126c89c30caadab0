"""What a guest says of its inside when a run begins: it may be another thing than in the plan, or nothing at all."""

from dataclasses import replace

import pytest
from support import hosts
from support.fakes.empty_machine import agent_of
from support.fakes.in_memory_host import InMemoryHost
from support.hosts import cpus
from support.values import make_run

from pinner import codec
from pinner.model.plan.request import Request
from pinner.model.settings.inside import (
    RMEM_DEFAULT,
    FlowQueue,
    GuestIrq,
    GuestIrqs,
    GuestQueue,
    GuestRfs,
    GuestRps,
    GuestSysctls,
)
from pinner.model.states import GuestCpus, Number
from pinner.planning import planner

BOOT = "11111111-2222-3333-4444-555555555555"
GUESTS = [hosts.guest(number, 4, cpus("0-15")) for number in (1, 2, 3)]
WHY = "the guest's agent needs more than 5 s"


def rps(guest, online="0-3", vcpus=""):
    return GuestRps(guest.uuid, guest.name, BOOT, cpus(online), (GuestQueue("eth0", 2, 0, cpus(vcpus)),))


def irqs(guest, vcpus="0-3"):
    return GuestIrqs(
        guest.uuid, guest.name, BOOT, cpus("0-3"), (GuestIrq(27, "virtio1-input.0", "eth0", 2, 0, cpus(vcpus)),)
    )


def sysctls(guest, most=212_992):
    return GuestSysctls(guest.uuid, guest.name, BOOT, {"net.core.rmem_max": most, RMEM_DEFAULT: 212_992})


def rfs(guest, entries=0, flows=0):
    return GuestRfs(guest.uuid, guest.name, BOOT, entries, (FlowQueue("eth0", 2, 0, flows),))


MADE = {
    "guest_rfs": (rfs, "guest-rfs"),
    "guest_rps": (rps, "guest-rps"),
    "guest_irqs": (irqs, "guest-irqs"),
    "guest_sysctls": (sysctls, "guest-sysctls"),
}


@pytest.fixture
def host():
    return InMemoryHost()


def snapshot(field, told, guests=GUESTS):
    return hosts.snapshot(hosts.plain(16, 2), guests, **{field: told})


def apply(host, journal, field, now, chosen=GUESTS, inventory=None, **more):
    """Plans the inside of three guests that say the usual, and applies that of the chosen ones where the agent's
    snapshot is ``now``, or comes from the inventory."""
    tell, remedy = MADE[field]
    taken = snapshot(field, tuple(map(tell, GUESTS)))
    made = planner.plan(taken, codec.content_hash(taken), Request(remedies=(remedy,)))
    inside = tuple(change for change in made.changes if change.target.kind.startswith("guest_"))
    assert len(inside) == (6 if field == "guest_rfs" else 3)
    inside = tuple(change for change in inside if change.target.owner.split(" ")[0] in {each.uuid for each in chosen})
    for change in inside:
        host.states.setdefault(change.target, change.before)
    basis = replace(made.basis, fingerprint=host.fingerprint())
    plan = replace(made, host="h1", changes=inside, basis=basis)
    agent = agent_of(journal, host, take=lambda _: now)
    agent._take_inventory = inventory or agent._take_inventory
    return agent.apply(plan, make_run(plan=plan.id, **more), lambda *_: None), inside


def test_only_guests_of_the_plan_are_asked(host, journal):
    """Each other one could delay the run."""
    asked = []

    def inventory(kinds, inside):
        asked.append((set(kinds), set(inside)))
        return snapshot("guest_rps", (rps(GUESTS[1]),))

    run, _ = apply(host, journal, "guest_rps", None, chosen=GUESTS[1:2], inventory=inventory)
    assert (run.state, states(journal)) == ("applied", {"g2": "done"})
    assert asked == [({"guest_rps"}, {GUESTS[1].uuid})]


def states(journal):
    return {entry.change.target.name.split(" ")[0]: entry.state for entry in journal.entries("run-1")}


@pytest.mark.parametrize("odd", range(3))
@pytest.mark.parametrize(
    ("field", "more", "why"),
    [
        ("guest_rps", {"online": "0-2"}, "by what the guest says now, a plan gives it '0-2', not '0-3'"),
        ("guest_rps", {"vcpus": "1"}, "it has '1' now, and keeps that"),
        ("guest_irqs", {"vcpus": "1"}, "it has '1' now, and keeps that"),
        ("guest_sysctls", {"most": 1 << 30}, "it has '1073741824' now, and keeps that"),
    ],
)
def test_a_guest_that_says_another_thing_fails_alone(host, journal, field, more, why, odd):
    """Its own irqbalance, a plugged vCPU or a sysctl is enough. Else it would keep all others from their CPUs."""
    tell, _ = MADE[field]
    told = tuple(tell(guest, **(more if number == odd else {})) for number, guest in enumerate(GUESTS))
    run, inside = apply(host, journal, field, snapshot(field, told))
    assert (run.state, run.error.partition("placed: ")[2]) == ("applied_partly", f"{inside[odd].target}: {why}")
    assert states(journal) == {f"g{n + 1}": "failed" if n == odd else "done" for n in range(3)}
    assert host.states[inside[odd].target] == inside[odd].before


def silent(*numbers):
    return tuple(
        GuestRps(guest.uuid, guest.name, unread=WHY) if number in numbers else rps(guest)
        for number, guest in enumerate(GUESTS)
    )


@pytest.mark.parametrize(
    "now",
    [
        snapshot("guest_rps", silent(2)),
        snapshot("guest_rps", silent(2)[:2], [*GUESTS[:2], replace(GUESTS[2], unread=WHY)]),
        snapshot("guest_rps", silent(2)[:2], [*GUESTS[:2], replace(GUESTS[2], state="paused")]),
    ],
    ids=["its agent", "libvirt", "paused"],
)
def test_the_changes_of_a_guest_that_is_silent_fail(host, journal, now):
    """They have not ended: nobody knows."""
    run, inside = apply(host, journal, "guest_rps", now)
    assert (run.state, states(journal)) == ("applied_partly", {"g1": "done", "g2": "done", "g3": "failed"})
    why = WHY if now.guests[2].state == "running" else "the guest is paused"
    assert f"{inside[2].target}: it cannot be read: {why}" in run.error


@pytest.mark.parametrize(
    ("told", "why"), [(silent(0, 1, 2), WHY), (None, "this host asks no agents of guests")], ids=["silent", "off"]
)
def test_a_run_that_does_nothing_is_not_applied(host, journal, told, why):
    run, inside = apply(host, journal, "guest_rps", snapshot("guest_rps", told))
    assert (run.state, set(states(journal).values())) == ("undone", {"failed"})
    assert why in run.error
    assert all(host.states[change.target] == change.before for change in inside)


def test_a_run_of_all_changes_or_none_writes_into_no_guest(host, journal):
    run, _ = apply(host, journal, "guest_rps", snapshot("guest_rps", silent(2)), all_or_nothing=True)
    assert (run.state, host.writes) == ("undone", [])
    assert WHY in run.error


@pytest.mark.parametrize("odd", range(3))
def test_a_guest_that_changes_after_the_snapshot_fails_alone_wherever_it_stands(host, journal, odd):
    target = rps(GUESTS[odd]).target(rps(GUESTS[odd]).queues[0])
    host.states[target] = GuestCpus(cpus("1"))
    run, _ = apply(host, journal, "guest_rps", snapshot("guest_rps", silent()))
    assert (run.state, host.states[target]) == ("applied_partly", GuestCpus(cpus("1")))
    assert "another program changed it just now" in run.error


def test_a_setting_that_is_made_already_fits(host, journal):
    """A plan that was applied in part may be applied again."""
    told = (sysctls(GUESTS[0], 26_214_400), *map(sysctls, GUESTS[1:]))
    host.states |= told[0].states
    run, inside = apply(host, journal, "guest_sysctls", snapshot("guest_sysctls", told))
    assert (run.state, {host.states[change.target] for change in inside}) == ("applied", {Number(26_214_400)})


@pytest.mark.parametrize("more", [{"entries": 32_768}, {"flows": 512}])
def test_a_guest_is_not_written_to_where_one_of_its_changes_does_not_fit(host, journal, more):
    """All its changes are made, or none."""
    told = (rfs(GUESTS[0], **more), *map(rfs, GUESTS[1:]))
    run, _ = apply(host, journal, "guest_rfs", snapshot("guest_rfs", told))
    assert (run.state, len(host.writes)) == ("applied_partly", 4)
    assert [what for what, _ in host.writes if what.startswith("guest g1 ")] == []
    assert run.error.startswith("1 of 3 guests and processes are not placed: guest g1 ")
    assert f"it has '{next(iter(more.values()))}' now, and keeps that" in run.error


@pytest.mark.parametrize("more", [{"entries": 4096, "flows": 4096}, {"entries": 4096}])
def test_what_a_guest_has_already_is_no_change_of_the_run(host, journal, more):
    """A plan that was applied in part is applied again; a rollback leaves what this run has not made."""
    told = (rfs(GUESTS[0], **more), *map(rfs, GUESTS[1:]))
    host.states |= told[0].states
    before = dict(host.states)
    run, inside = apply(host, journal, "guest_rfs", snapshot("guest_rfs", told))
    assert (run.state, run.error) == ("applied", "")
    assert {host.states[change.target] for change in inside} == {Number(4096)}
    agent_of(journal, host).rollback(make_run("run-2", kind="rollback", undoes="run-1", plan=""), lambda *_: None)
    assert {target: host.states[target] for target in before} == before
