"""Sysctls: each is a group of its own, set, restored exactly, and left to another program that has set it since."""

import pytest
from support.fakes.in_memory_host import InMemoryHost, vcpu
from support.values import NOON, make_run

from pinner.apply import executor, steps
from pinner.apply.recover import recover
from pinner.model.change import StateChange
from pinner.model.errors import ApplyFailed, StalePlan
from pinner.model.kinds import Number
from pinner.model.run.change_text import before_and_after
from pinner.model.settings.sysctls import SYSCTLS

RULES = tuple(SYSCTLS[key] for key in ("net.core.rmem_max", "vm.swappiness"))
RMEM, SWAPPINESS = (rule.target for rule in RULES)


@pytest.fixture
def host():
    host = InMemoryHost()
    host.add(vcpu(0), "0-7")
    host.states |= {RMEM: Number(212992), SWAPPINESS: Number(60)}
    return host


def changes(host):
    return tuple(StateChange(rule.target, host.states[rule.target], Number(rule.value), "so") for rule in RULES)


def apply(host, journal, *made, run="run-1", **more):
    plan = host.plan(*made, host.change(vcpu(0), "2"))
    return executor.apply(plan, make_run(run, **more), host, journal, lambda: NOON, lambda entry, total: None)


def rollback(host, journal, undoes="run-1"):
    undo = make_run("run-9", kind="rollback", plan="plan-1" if undoes else "", undoes=undoes)
    return executor.rollback(undo, host, journal, lambda: NOON, lambda entry, total: None)


def values(host):
    return [host.states[rule.target].value for rule in RULES]


@pytest.mark.parametrize("undoes", ["run-1", ""])
def test_sysctls_are_set_beside_threads_and_restored_exactly(host, journal, undoes):
    before = host.kernel()
    assert apply(host, journal, *changes(host)).state == "applied"
    assert values(host) == [26214400, 1]
    assert rollback(host, journal, undoes).state == "rolled_back"
    assert (values(host), host.kernel()) == ([212992, 60], before)


def test_the_journal_has_the_former_value_before_the_kernel_gets_the_new_one(host, journal):
    seen = []
    host.before_write = lambda write: seen.append([entry.change for entry in journal.entries("run-1")])
    apply(host, journal, *changes(host))
    assert seen[0][:2] == list(changes(InMemoryHostLike(host)))
    assert before_and_after(seen[0][0]) == ("212992", "26214400")


class InMemoryHostLike:
    """The sysctls as they were before the run."""

    def __init__(self, host):
        self.states = {**host.states, RMEM: Number(212992), SWAPPINESS: Number(60)}


def test_a_value_of_another_program_stays_and_is_reported(host, journal):
    apply(host, journal, *changes(host))
    host.states[RMEM] = Number(99)
    run = rollback(host, journal)
    assert (run.state, values(host)) == ("rolled_back_partly", [99, 60])
    assert "sysctl net.core.rmem_max was set to '99' by another program or a later run, and stays so" in run.error


def test_a_refused_sysctl_fails_alone(host, journal):
    def refuse(write):
        if write == (str(RMEM), "26214400"):
            raise ApplyFailed(str(RMEM), "the kernel refuses 26214400: Read-only file system")

    host.before_write = refuse
    run = apply(host, journal, *changes(host))
    assert (run.state, values(host)) == ("applied_partly", [212992, 1])
    assert "Read-only file system" in run.error


def test_a_value_that_the_kernel_rounds_leaves_the_former_one(host, journal):
    real = host.set_state

    def rounding(target, state):
        real(target, Number(state.value - state.value % 4096) if state.value == 26214400 - 1 else state)
        if host.states[target] != state:
            raise ApplyFailed(str(target), f"asked for {state}, the kernel says {host.states[target]}")

    host.set_state = rounding
    odd = StateChange(RMEM, host.states[RMEM], Number(26214400 - 1), "so")
    run = apply(host, journal, odd)
    assert (run.state, values(host)) == ("applied_partly", [212992, 60])


def test_a_plan_for_another_value_is_stale(host, journal):
    made = changes(host)
    host.states[SWAPPINESS] = Number(30)
    with pytest.raises(StalePlan, match=r"sysctl vm\.swappiness is '30', no longer '60'"):
        apply(host, journal, *made)
    assert values(host) == [212992, 30]


@pytest.mark.parametrize("policy", ["back", "forward"])
@pytest.mark.parametrize("point", range(3))
@pytest.mark.parametrize("made", [False, True])
def test_a_run_that_was_killed_at_any_point_is_undone_or_finished(host, journal, point, made, policy, monkeypatch):
    """The process dies before or after each write."""

    class Killed(BaseException):
        pass

    def dying(act):
        def write(*args, **more):
            if len(host.writes) == point:
                if made:
                    act(*args, **more)
                raise Killed
            act(*args, **more)

        return write

    def die(*_, **__):
        raise Killed

    with monkeypatch.context() as dead:
        dead.setattr(host, "set_state", dying(host.set_state))
        dead.setattr(host, "pin", dying(host.pin))
        dead.setattr(journal, "end", die)
        dead.setattr(steps, "undo", die)
        with pytest.raises(Killed):
            apply(host, journal, *changes(host))
    journal._notes.clear()  # they died with the process
    run = recover(host, journal, policy, lambda: NOON)
    assert (run.state, values(host)) == (("undone", [212992, 60]) if policy == "back" else ("applied", [26214400, 1]))


def test_sysctls_reset_no_masks(host):
    assert not any(map(steps.resets_masks, changes(host)))
