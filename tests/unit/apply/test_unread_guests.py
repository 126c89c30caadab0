"""Guests that cannot be read when a run begins, because libvirt does not answer about them: for libvirt 11 a QEMU that
hangs is enough. The agent cannot compare their changes with its rules, so no run makes them."""

import pytest
from support.fakes.admitted_runs import apply_admitted, recover_killed
from support.fakes.in_memory_host import InMemoryHost, vcpu

from pinner.apply.notes import require_read
from pinner.apply.ports import Admission
from pinner.model.errors import Busy

WHY = "libvirt does not answer about it"


@pytest.fixture
def host():
    host = InMemoryHost()
    for target in (vcpu(0), vcpu(0, "g2")):
        host.add(target, "0-7")
        host.definitions[target.owner] = ""
    host.marked.add(vcpu(0, "g2").owner)  # what libvirt does not describe is left alone
    return host


def apply(host, journal, **more):
    plan = host.plan(host.change(vcpu(0), "2"), host.change(vcpu(0, "g2"), "3"))
    return apply_admitted(Admission(plan, unread={vcpu(0, "g2").owner: WHY}), host, journal, **more)


def masks(host):
    return [str(host.threads[target][0].cpus) for target in (vcpu(0), vcpu(0, "g2"))]


def entries(journal):
    """The state and the error of each change of a pin."""
    found = [entry for entry in journal.entries("run-1") if entry.change.target.kind == "vcpu"]
    return {str(entry.change.target): (entry.state, entry.error) for entry in found}


def test_no_call_was_made_for_a_part_that_cannot_be_read():
    """So its outcome is known: nothing has changed."""
    with pytest.raises(Busy) as refused:
        require_read(vcpu(0), {vcpu(0).owner: WHY})
    assert not refused.value.details["overdue"]


@pytest.mark.fault(47)
@pytest.mark.parametrize("persist", [False, True])
def test_only_the_guest_that_cannot_be_read_fails(host, journal, persist):
    run = apply(host, journal, persist=persist)
    assert (run.state, masks(host)) == ("applied_partly", ["2", "0-7"])
    assert run.error == (
        f"1 of 2 guests and processes are not placed: {vcpu(0, 'g2')}: it cannot be read: {WHY}; try again later"
    )
    assert entries(journal)[str(vcpu(0))] == ("done", "")
    assert entries(journal)[str(vcpu(0, "g2"))][0] == "failed"


def test_a_run_of_all_changes_or_none_makes_none(host, journal):
    run = apply(host, journal, all_or_nothing=True)
    assert (run.state, masks(host)) == ("undone", ["0-7", "0-7"])
    assert WHY in run.error


@pytest.mark.parametrize("policy", ["back", "forward"])
def test_the_recovery_of_a_killed_run_changes_no_guest_that_could_not_be_read(host, journal, policy):
    """Nobody has compared its changes with the rules of the agent."""
    run = recover_killed(lambda: apply(host, journal), host, journal, policy)
    assert run.state == {"back": "undone", "forward": "applied_partly"}[policy]
    assert masks(host)[1] == "0-7"
