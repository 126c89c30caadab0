"""Targets that had ended before a run, by the agent's own inventory: neither the run nor its recovery changes them."""

import pytest
from support.fakes.admitted_runs import apply_admitted, recover_killed
from support.fakes.in_memory_host import InMemoryHost, vcpu
from support.values import NOON, make_run

from pinner.apply import executor
from pinner.apply.ports import Admission
from pinner.model.change import StateChange, Target
from pinner.model.states import Number

RING = Target("ring", "ens1 2", None, "ens1")
DAEMON = Target("process", "900", 7, "daemon")


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
    return apply_admitted(Admission(plan, frozenset({RING, DAEMON})), host, journal, **more)


def states(journal):
    return {str(entry.change.target): entry.state for entry in journal.entries("run-1")}


def test_a_run_changes_no_target_that_had_ended(host, journal):
    assert apply(host, journal).state == "applied"
    assert (host.states[RING], [str(mask.cpus) for mask in host.threads[DAEMON]]) == (Number(512), ["0-7"])
    assert states(journal) == {str(vcpu(0)): "done", str(RING): "gone", str(DAEMON): "gone"}


@pytest.mark.parametrize("policy", ["back", "forward"])
def test_the_recovery_of_a_killed_run_changes_no_target_that_had_ended(host, journal, policy):
    """Nobody has compared these changes with the rules of the agent."""
    run = recover_killed(lambda: apply(host, journal), host, journal, policy)
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
