"""Interrupts and RPS of virtio cards and disks on a lab host: placed, put back after drift, restored exactly."""

import re
import time

import pytest
from support.system.lab import CALLER, apply, ended, guests, name, plan, rollback, server
from support.system.lab_interrupts import affinities, cpus_of, irqbalance, wait

from pinner.model.cpuset import CpuSet
from pinner.model.plan.request import Request
from pinner.model.policy import Policy


@pytest.fixture(scope="module")
def two_socket(lab_host):
    host = lab_host("two-socket")
    with guests(host):
        yield host


def irqs(made):
    return [change for change in made.changes if change.target.kind == "irq"]


def test_interrupts_are_placed_kept_in_drift_and_restored(two_socket):
    before = affinities(two_socket)
    made = plan(two_socket, remedies=("irqs",))
    moved = irqs(made)
    assert any("virtio" in change.target.name for change in moved), (before, made.skipped)
    run, state = apply(two_socket, made)
    assert state == "applied"
    after = affinities(two_socket)
    for change in moved:
        assert after[str(change.target.part)][1] == str(change.after)
        assert change.after <= made.roles.housekeeping
    untouched = before.keys() - {str(change.target.part) for change in moved}
    assert {number: after[number] for number in untouched} == {number: before[number] for number in untouched}
    assert irqs(plan(two_socket, remedies=("irqs",))) == []

    first = moved[0].target
    astray = min(made.roles.vcpu)
    two_socket.run(f"echo {astray} > /proc/irq/{first.part}/smp_affinity_list")
    drifts = {drift.target.key: drift for drift in server(two_socket).drift(name(two_socket)).drifts}
    assert drifts[first.key].states == (CpuSet.of([astray]), moved[0].after)
    two_socket.run(f"echo {moved[0].after} > /proc/irq/{first.part}/smp_affinity_list")

    assert rollback(two_socket, run) == "rolled_back"
    assert affinities(two_socket) == before


def test_rps_loses_the_cpus_of_guests_and_gets_them_back(two_socket):
    path = "/sys/class/net/eth0/queues/rx-0/rps_cpus"
    former = two_socket.run(f"cat {path}").out.strip()
    two_socket.run(f"echo ff > {path}")
    try:
        before = two_socket.run(f"cat {path}").out.strip()
        made = plan(two_socket, remedies=("rps",))
        (change,) = [change for change in made.changes if change.target.kind == "rps"]
        assert not change.after & (made.roles.vcpu | made.roles.emulator)
        run, state = apply(two_socket, made)
        assert state == "applied"
        now = two_socket.run(f"cat {path}").out.strip()
        assert int(now.replace(",", ""), 16) == change.after.bits
        assert rollback(two_socket, run) == "rolled_back"
        assert two_socket.run(f"cat {path}").out.strip() == before
    finally:
        two_socket.run(f"echo {former} > {path}")


def test_managed_interrupts_of_virtio_disks_are_left_out_or_refused_in_the_kernels_words(two_socket):
    made = plan(two_socket, remedies=("irqs",))
    run, state = apply(two_socket, made)
    entries = {entry.change.target.key: entry for entry in server(two_socket).entries(run)}
    refused = [entry for entry in entries.values() if entry.state == "failed"]
    assert state.startswith("applied_partly" if refused else "applied")
    assert all("the kernel refuses CPUs" in entry.error for entry in refused)
    assert rollback(two_socket, run) == "rolled_back"


def test_a_rollback_of_all_runs_restores_the_first_affinities(two_socket):
    before = affinities(two_socket)
    for request in ({"remedies": ("irqs",)}, {"remedies": ("irqs",), "housekeeping": "0-1", "emulator": "2"}):
        assert apply(two_socket, plan(two_socket, **request))[1].startswith("applied")
    back = server(two_socket).rollback_all(name(two_socket), CALLER)
    assert list(server(two_socket).follow(back.id))[-1].run.state == "rolled_back"
    assert affinities(two_socket) == before


def test_what_irqbalance_moves_is_drift_and_a_policy_puts_it_back(two_socket):
    before = affinities(two_socket)
    request = Request("shared-pool", remedies=("irqs",))
    moved = {str(change.target.part): str(change.after) for change in irqs(plan(two_socket, remedies=("irqs",)))}
    server(two_socket).set_policy(name(two_socket), Policy(request, "enforce"), CALLER)
    wait(lambda: moved.items() <= cpus_of(affinities(two_socket)).items(), two_socket)
    server(two_socket).set_policy(name(two_socket), Policy(request, "observe"), CALLER)
    with irqbalance(two_socket):
        wait(lambda: not moved.items() <= cpus_of(affinities(two_socket)).items(), two_socket)
        assert any(drift.target.kind == "irq" for drift in server(two_socket).drift(name(two_socket)).drifts)
    server(two_socket).set_policy(name(two_socket), Policy(request, "enforce"), CALLER)
    wait(lambda: moved.items() <= cpus_of(affinities(two_socket)).items(), two_socket)
    server(two_socket).delete_policy(name(two_socket), CALLER)
    assert ended(two_socket, server(two_socket).rollback_all(name(two_socket), CALLER))[1] == "rolled_back"
    assert cpus_of(affinities(two_socket)).items() >= {number: cpus_of(before)[number] for number in moved}.items()


def banned(host):
    """A plan with the CPUs that irqbalance is to ban."""
    return plan(host, remedies=("irqbalance",))


def test_a_running_irqbalance_bans_the_cpus_of_guests_and_follows_its_configuration_again(two_socket):
    with irqbalance(two_socket):
        wait(lambda: any(change.target.kind == "irqbalance" for change in banned(two_socket).changes), two_socket)
        made = banned(two_socket)
        (change,) = [each for each in made.changes if each.target.kind == "irqbalance"]
        theirs = made.roles.vcpu | made.roles.emulator
        assert (str(change.before), change.after) == ("", theirs)
        run, state = apply(two_socket, made)
        assert state.startswith("applied")
        assert [each for each in banned(two_socket).changes if each.target.kind == "irqbalance"] == []
        assert rollback(two_socket, run).startswith("rolled_back")
        (again,) = [each for each in banned(two_socket).changes if each.target == change.target]
        assert again == change


def test_irqbalance_stays_off_the_guests_with_the_line_that_the_plan_advises(two_socket):
    with irqbalance(two_socket):
        warned = [each for each in plan(two_socket, remedies=("irqs",)).warnings if "irqbalance" in each]
    (line,) = [found[0] for each in warned if (found := re.search(r"IRQBALANCE_BANNED_CPULIST=\S+", each))]
    made = plan(two_socket, remedies=("irqs",))
    run, state = apply(two_socket, made)
    assert state.startswith("applied")
    with irqbalance(two_socket, f"--setenv={line}"):
        assert [each for each in plan(two_socket, remedies=("irqs",)).warnings if "irqbalance" in each] == []
        time.sleep(20)  # as many looks of irqbalance
        theirs = made.roles.vcpu | made.roles.emulator
        now = cpus_of(affinities(two_socket))
        assert [number for change in irqs(made) if CpuSet.parse(now[number := str(change.target.part)]) & theirs] == []
    assert rollback(two_socket, run).startswith("rolled_back")
