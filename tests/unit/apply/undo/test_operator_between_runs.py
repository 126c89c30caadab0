"""An operator pins a guest in its definition between two runs that write the same pin there."""

from itertools import permutations

import pytest
from support.fakes.in_memory_host import daemon, defined_guest, vcpu
from support.values import NOON, make_run

from pinner.apply import executor, recover

pytestmark = pytest.mark.fault(52, 72)

GUEST = "uuid-g1"
OPERATORS = "[vcpu 0: 6]"


@pytest.fixture
def host():
    return defined_guest()


def persist(host, journal, name):
    """A run that persists vCPU 0 on CPU 4; another program has moved its thread before."""
    host.clock += 10
    host.move(host.threads[vcpu(0)][0].tid, "0-7")
    run, plan = make_run(name, persist=True), host.plan(host.change(vcpu(0), "4"))
    ended = executor.apply(plan, run, host, journal, lambda: NOON, lambda *_: None)
    assert (ended.state, host.definitions[GUEST]) == ("applied", "<cputune/>[vcpu 0: 4]")


def operator_pins(host, pin=OPERATORS):
    host.definitions[GUEST] = "<cputune/>" + pin


def three_runs(host, journal, after, pin):
    """Three runs; the operator pins after one of them. The definition had another pin before."""
    host.definitions[GUEST] = "<cputune/>[vcpu 0: 5]"
    for name in ("r1", "r2", "r3"):
        persist(host, journal, name)
        if name == after:
            operator_pins(host, pin)


def roll_back(host, journal, undoes, *, interrupted=False):
    run = make_run(f"back-{undoes}", kind="rollback", plan="", undoes=undoes)
    if interrupted:
        journal.begin(run)
        journal.leave(run)
        return recover.recover(host, journal, "back", lambda: NOON, host.boot)
    return executor.rollback(run, host, journal, lambda: NOON, lambda *_: None)


@pytest.mark.parametrize("pin", [OPERATORS, ""], ids=["set", "removed"])
@pytest.mark.parametrize("after", ["r1", "r2"])
@pytest.mark.parametrize("order", [*permutations(("r1", "r2", "r3")), ("",)], ids=" ".join)
def test_the_operators_pin_comes_back_whichever_run_is_rolled_back_first(host, journal, order, after, pin):
    """``pin``: the operator sets a pin, or removes pinner's; ``after`` this run."""
    three_runs(host, journal, after, pin)
    found = {name: roll_back(host, journal, name).error for name in order}
    assert (host.definitions[GUEST], host.kernel()[200]) == ("<cputune/>" + pin, "0-7")
    # Where the operator's pin is back before, the rollback says that it stays.
    assert all(not why or "of an operator" in why for why in found.values())
    assert order[0] not in ("r1", "") or not any(found.values())


@pytest.mark.parametrize("after", ["r1", "r2"])
@pytest.mark.parametrize("order", [("r1", "r2", "r3"), ("",)], ids=" ".join)
def test_an_interrupted_rollback_gives_the_operators_pin_back(host, journal, order, after):
    three_runs(host, journal, after, OPERATORS)
    for name in order:
        assert roll_back(host, journal, name, interrupted=True).error == ""
    assert host.definitions[GUEST] == "<cputune/>" + OPERATORS


def test_the_last_one_of_several_pins_of_an_operator_comes_back(host, journal):
    persist(host, journal, "r1")
    operator_pins(host, "[vcpu 0: 5]")
    persist(host, journal, "r2")
    operator_pins(host)
    persist(host, journal, "r3")
    assert roll_back(host, journal, "").state == "rolled_back"
    assert host.definitions[GUEST] == "<cputune/>" + OPERATORS


def test_without_an_operator_the_definition_from_before_the_first_run_comes_back_in_any_order(host, journal):
    for name in ("r1", "r2", "r3"):
        persist(host, journal, name)
    for name in ("r1", "r3", "r2"):
        assert roll_back(host, journal, name).error == ""
    assert host.definitions[GUEST] == "<cputune/>"


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize("order", [("r1", "r2"), ("r2", "r1"), ("",)], ids=" ".join)
def test_a_process_that_two_persisting_runs_moved_comes_back(host, journal, order, interrupted):
    """A process has no definition, which a run persists for the guests of its plan."""
    host.add(daemon(400), "0-7")
    for name in ("r1", "r2"):
        host.move(host.threads[daemon(400)][0].tid, "0-7")
        run, plan = make_run(name, persist=True), host.plan(host.change(daemon(400), "4"))
        assert executor.apply(plan, run, host, journal, lambda: NOON, lambda *_: None).state == "applied"
    for name in order:
        assert roll_back(host, journal, name, interrupted=interrupted).error == ""
    assert {str(thread.cpus) for thread in host.threads[daemon(400)]} == {"0-7"}
