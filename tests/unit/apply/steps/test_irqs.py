"""Interrupts and receive queues: each is a group of its own, set, undone exactly, and gone where its number or name has
another device."""

import pytest
from support.fakes.in_memory_host import InMemoryHost, daemon, vcpu
from support.values import NOON, cpus, make_run

from pinner.apply import executor
from pinner.apply.recover import recover
from pinner.model.change import StateChange
from pinner.model.errors import ApplyFailed, Gone
from pinner.model.machine.interrupts import Balancer, DeviceIrq
from pinner.model.settings.cards import RpsQueue
from pinner.model.text import before_and_after

QUEUES = (
    *(DeviceIrq(24 + n, f"ens1-rx-{n}", "0000:3b:00.0", cpus("0-7")).target for n in range(2)),
    RpsQueue("ens1", 2, 0, cpus("0-7")).target,
)


@pytest.fixture
def host():
    host = InMemoryHost()
    host.add(vcpu(0), "0-7")
    host.add(daemon(500), "0-7")
    host.states |= dict.fromkeys(QUEUES, cpus("0-7"))
    return host


def changes(host, to="0"):
    return tuple(StateChange(irq, host.states[irq], cpus(to), "so") for irq in QUEUES)


def apply(host, journal, *changes, run="run-1", **more):
    plan = host.plan(*changes)
    return executor.apply(plan, make_run(run, **more), host, journal, lambda: NOON, lambda entry, total: None)


def rollback(host, journal, undoes="run-1"):
    undo = make_run("run-9", kind="rollback", undoes=undoes)
    return executor.rollback(undo, host, journal, lambda: NOON, lambda entry, total: None)


def affinities(host):
    return [str(host.states[irq]) if irq in host.states else "gone" for irq in QUEUES]


def test_interrupts_are_set_beside_threads_and_restored_exactly(host, journal):
    host.states[QUEUES[1]] = cpus("5")
    before = host.kernel()
    run = apply(host, journal, *changes(host), host.change(vcpu(0), "2"))
    assert (run.state, affinities(host)) == ("applied", ["0", "0", "0"])
    # No mask of a thread is touched because of an interrupt.
    assert [what for what, _ in host.writes if what.isdigit()] == []
    assert rollback(host, journal).state == "rolled_back"
    assert (affinities(host), host.kernel()) == (["0-7", "5", "0-7"], before)


def test_a_refused_interrupt_fails_alone(host, journal):
    def refuse(write):
        if write == (str(QUEUES[1]), "0"):
            raise ApplyFailed(str(QUEUES[1]), "the kernel refuses CPUs 0: Input/output error")

    host.before_write = refuse
    run = apply(host, journal, *changes(host), host.change(vcpu(0), "2"))
    assert (run.state, affinities(host)) == ("applied_partly", ["0", "0-7", "0"])
    assert "Input/output error" in run.error
    assert [entry.state for entry in journal.entries("run-1")] == ["done", "failed", "done", "done"]


@pytest.mark.parametrize("point", range(4))
def test_all_or_nothing_leaves_nothing_of_a_failed_run(host, journal, point):
    before = host.kernel()

    def refuse(_write):
        if len(host.writes) == point:
            host.before_write = lambda _: None
            raise ApplyFailed("it", "no")

    host.before_write = refuse
    run = apply(host, journal, *changes(host), host.change(vcpu(0), "2"), all_or_nothing=True)
    assert (run.state, affinities(host), host.kernel()) == ("undone", ["0-7"] * 3, before)


def test_an_interrupt_that_vanishes_during_an_apply_is_gone_and_delays_nothing(host, journal):
    def vanish(write):
        if write[0] == str(QUEUES[0]):
            host.states.pop(QUEUES[1], None)

    host.before_write = vanish
    run = apply(host, journal, *changes(host), host.change(vcpu(0), "2"))
    assert (run.state, affinities(host)) == ("applied", ["0", "gone", "0"])
    assert [entry.state for entry in journal.entries("run-1")] == ["done", "gone", "done", "done"]
    assert rollback(host, journal).state == "rolled_back"
    assert affinities(host) == ["0-7", "gone", "0-7"]


def test_an_interrupt_that_had_vanished_before_the_apply_is_gone(host, journal):
    planned = changes(host)
    del host.states[QUEUES[2]]
    assert apply(host, journal, *planned).state == "applied"
    assert [entry.state for entry in journal.entries("run-1")] == ["done", "done", "gone"]


def test_an_undo_leaves_another_device_under_the_number_alone(host, journal):
    apply(host, journal, *changes(host))
    del host.states[QUEUES[0]]
    other = DeviceIrq(24, "other", "0000:01:00.0", cpus("0-7")).target
    host.states[other] = cpus("0")
    assert rollback(host, journal).state == "rolled_back_partly"
    assert str(host.states[other]) == "0"
    first = journal.entries("run-1")[0]
    assert (first.state, first.error) == ("gone", str(Gone(str(QUEUES[0]))))


@pytest.mark.parametrize("offline", ["1,8-63", "8-63"], ids=["still", "no longer"])
@pytest.mark.parametrize("undoes", ["run-1", ""])
def test_an_interrupt_whose_cpu_went_offline_is_restored(host, journal, offline, undoes):
    """The kernel gives it all CPUs that are online then, and leaves it so when the CPU is online again."""
    host.offline = "8-63"
    host.states[QUEUES[1]] = cpus("5")
    apply(host, journal, *changes(host, "1"))
    host.states |= dict.fromkeys(QUEUES[:2], cpus("0,2-7"))
    host.offline = offline
    undo = make_run("run-9", kind="rollback", plan="", undoes=undoes)
    run = executor.rollback(undo, host, journal, lambda: NOON, lambda entry, total: None)
    assert (run.state, affinities(host)) == ("rolled_back", ["0-7", "5", "0-7"])


def test_the_other_cpu_of_two_may_be_the_choice_of_another_program(host, journal):
    host.offline = "2-63"
    apply(host, journal, *changes(host, "1"))
    host.states[QUEUES[1]] = cpus("0")
    assert rollback(host, journal).state == "rolled_back_partly"
    assert affinities(host) == ["0-7", "0", "0-7"]


def test_a_rollback_of_all_runs_restores_what_was_before_the_first(host, journal):
    host.states[QUEUES[1]] = cpus("4")
    apply(host, journal, *changes(host))
    host.states[QUEUES[0]] = cpus("6")  # irqbalance, and a policy that puts it back
    apply(host, journal, *changes(host, "1"), run="run-2")
    whole = make_run("run-9", kind="rollback", plan="", undoes="")
    run = executor.rollback(whole, host, journal, lambda: NOON, lambda entry, total: None)
    assert (run.state, affinities(host)) == ("rolled_back", ["0-7", "4", "0-7"])


@pytest.mark.parametrize("undoes", ["run-1", ""])
@pytest.mark.parametrize("interrupted", [False, True])
def test_irqbalance_gets_its_cpus_back_after_the_interrupts(host, journal, undoes, interrupted):
    """It moves the interrupts as soon as it gets other CPUs."""
    balancer = Balancer(812, "", None, 7).target
    host.states[balancer] = cpus("")
    ban = StateChange(balancer, cpus(""), cpus("1-7"), "so")
    assert apply(host, journal, *changes(host), ban, host.change(vcpu(0), "2")).state == "applied"
    found = []

    def balance(write):
        if write == (str(balancer), ""):
            found.append(affinities(host))
            host.states |= dict.fromkeys(QUEUES[:2], cpus("6"))

    host.before_write = balance
    undo = make_run("run-9", kind="rollback", plan="", undoes=undoes)
    if interrupted:
        journal.begin(undo)
        journal.leave(undo)
        run = recover(host, journal, "back", lambda: NOON)
    else:
        run = executor.rollback(undo, host, journal, lambda: NOON, lambda entry, total: None)
    assert (run.state, found, host.states[balancer]) == ("rolled_back", [["0-7"] * 3], cpus(""))


def test_rps_that_is_switched_off_is_shown_and_restored(host, journal):
    rps = QUEUES[2]
    off = StateChange(rps, host.states[rps], cpus(""), "so")
    assert before_and_after(off) == ("0-7", "none")
    assert apply(host, journal, off).state == "applied"
    assert affinities(host) == ["0-7", "0-7", ""]
    assert rollback(host, journal).state == "rolled_back"
    assert affinities(host) == ["0-7"] * 3
