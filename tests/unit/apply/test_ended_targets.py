"""Targets that had ended before a run, by the agent's own inventory: neither the run nor its recovery changes them."""

import pytest
from support.in_memory_host import InMemoryHost, vcpu
from support.values import NOON, make_run

from pinner.apply import executor
from pinner.apply.ports import Admission
from pinner.apply.recover import recover
from pinner.model.change import Number, StateChange, Target

RING = Target("ring", "ens1 2", None, "ens1")
DAEMON = Target("process", "900", 7, "daemon")


class Killed(BaseException):
    pass


@pytest.fixture
def host():
    host = InMemoryHost()
    for target in (vcpu(0), DAEMON):
        host.add(target, "0-7")
    host.definitions = {vcpu(0).owner: ""}
    host.states[RING] = Number(512)
    return host


def apply(host, journal, **more):
    ring = StateChange(RING, Number(512), Number(64), "so")
    plan = host.plan(host.change(vcpu(0), "2"), ring, host.change(DAEMON, "3"))
    admission = Admission(plan, frozenset({RING, DAEMON}))
    run = make_run("run-1", **more)
    return executor.apply(
        plan, run, host, journal, lambda: NOON, lambda entry, total: None, lambda plan, run: admission
    )


def states(journal):
    return {str(entry.change.target): entry.state for entry in journal.entries("run-1")}


def test_a_run_changes_no_target_that_had_ended(host, journal):
    assert apply(host, journal).state == "applied"
    assert (host.states[RING], [str(mask.cpus) for mask in host.threads[DAEMON]]) == (Number(512), ["0-7"])
    assert states(journal) == {str(vcpu(0)): "done", str(RING): "gone", str(DAEMON): "gone"}


@pytest.mark.parametrize("policy", ["back", "forward"])
def test_the_recovery_of_a_killed_run_changes_no_target_that_had_ended(host, journal, policy, monkeypatch):
    """Nobody has compared these changes with the rules of the agent."""

    def die(*_):
        raise Killed

    host.before_write = die
    with monkeypatch.context() as dead:
        dead.setattr("pinner.apply.transaction.Transaction._undo_groups", die)
        with pytest.raises(Killed):
            apply(host, journal)
    host.before_write = lambda write: None
    journal._notes.clear()  # they died with the process
    run = recover(host, journal, policy, lambda: NOON)
    assert run.state == {"back": "undone", "forward": "applied"}[policy]
    assert (host.states[RING], [str(mask.cpus) for mask in host.threads[DAEMON]]) == (Number(512), ["0-7"])


def test_a_rollback_leaves_what_a_later_run_set(host, journal):
    """With persist, a rollback also restores definitions of guests that have ended. A ring has none."""
    assert apply(host, journal, persist=True).state == "applied"
    ring = StateChange(RING, Number(512), Number(64), "so")
    later = executor.apply(host.plan(ring), make_run("run-2"), host, journal, lambda: NOON, lambda entry, total: None)
    assert (later.state, host.states[RING]) == ("applied", Number(64))
    undo = make_run("run-9", kind="rollback", undoes="run-1")
    executor.rollback(undo, host, journal, lambda: NOON, lambda entry, total: None)
    assert host.states[RING] == Number(64)
