"""Runs with a live partition and every kind of setting, in which the kernel refuses one."""

import pytest
from support.fakes.in_memory_host import InMemoryHost, vcpu
from support.made_up.setting_cases import CASES
from support.values import MEMBER, NOON, cpus, isolated, make_run

from pinner.apply import executor
from pinner.apply.recover import recover
from pinner.model.change import StateChange, Target
from pinner.model.errors import ApplyFailed, Busy, HostUnreachable, NotPermitted
from pinner.model.kinds import KINDS
from pinner.model.machine.topology import FAST
from pinner.model.settings.cpu_weights import DEFAULT, WEIGHT
from pinner.model.settings.power import PERFORMANCE
from pinner.model.states import Coalescing, GuestCpus, Number

SCOPE = Target("partition", "machine.slice/g1", None, "g1")
RPS_OF_A_GUEST = CASES["guest_rps"].target
SETTINGS = {kind: (case.target, case.before, case.after) for kind, case in CASES.items() if not KINDS[kind].is_late}
BEFORE = {SCOPE: MEMBER} | {target: before for target, before, _ in SETTINGS.values()}


@pytest.fixture
def host():
    host = InMemoryHost()
    host.add(vcpu(0), "0-7")
    host.states |= BEFORE
    return host


def test_an_undo_sets_a_weight_that_an_interrupted_undo_has_set(host, journal):
    """The interrupted one may have left systemd's file."""
    apply(host, journal)
    host.states[WEIGHT] = DEFAULT
    written = []
    host.before_write = lambda write: written.append(write[0])
    assert rollback(host, journal).state == "rolled_back"
    assert str(WEIGHT) in written


def refuse(host, *targets):
    def write(written):
        if written[0] in map(str, targets):
            raise ApplyFailed(written[0], "the kernel refuses it")

    host.before_write = write


def apply(host, journal, run="run-1", **more):
    settings = (StateChange(target, before, after, "so") for target, before, after in SETTINGS.values())
    partition = StateChange(SCOPE, MEMBER, isolated("4-7"), "so")
    plan = host.plan(*settings, host.change(vcpu(0), "4-7"), partition)
    return executor.apply(plan, make_run(run, **more), host, journal, lambda: NOON, lambda entry, total: None)


def rollback(host, journal, undoes="run-1", name="run-9"):
    undo = make_run(name, kind="rollback", undoes=undoes)
    return executor.rollback(undo, host, journal, lambda: NOON, lambda entry, total: None)


ENERGY, GOVERNOR = CASES["epp"], CASES["governor"]


def drive(host, *, is_intel):
    """A driver that keeps performance with the governor, as intel_pstate and amd-pstate do. Only the former restores
    the preference with another governor."""
    real, saved = host.set_state, []

    def set_state(target, state):
        if target == ENERGY.target and host.states[GOVERNOR.target] == FAST and state != PERFORMANCE:
            raise ApplyFailed(str(target), f"the kernel refuses {state}: Device or resource busy")
        real(target, state)
        if target == GOVERNOR.target and state == FAST:
            saved.append(host.states[ENERGY.target])
            host.states[ENERGY.target] = PERFORMANCE
        elif target == GOVERNOR.target and is_intel:
            host.states[ENERGY.target] = saved[-1]

    host.set_state = set_state


@pytest.mark.parametrize("is_intel", [True, False])
@pytest.mark.parametrize("runs", [["epp", "governor"], ["epp"], ["epp,governor"]], ids=str)
def test_a_rollback_restores_the_preference_after_the_governor(journal, is_intel, runs):
    host = InMemoryHost()
    host.states |= {case.target: case.before for case in (ENERGY, GOVERNOR)}
    drive(host, is_intel=is_intel)
    for number, kinds in enumerate(runs):
        changes = (CASES[kind].change for kind in kinds.split(","))
        run = make_run(f"run-{number}")
        done = executor.apply(host.plan(*changes), run, host, journal, lambda: NOON, lambda entry, total: None)
        assert done.state == "applied"
    assert host.states[ENERGY.target] == PERFORMANCE
    if len(runs) > 1:
        refused = rollback(host, journal, "run-0", "run-8")
        assert (refused.state, host.states[ENERGY.target]) == ("rolled_back_partly", PERFORMANCE)
        assert "Device or resource busy" in refused.error
    assert rollback(host, journal, "").state == "rolled_back"
    assert host.states == {case.target: case.before for case in (ENERGY, GOVERNOR)}


@pytest.mark.parametrize("kind", SETTINGS)
def test_a_refused_setting_fails_alone(host, journal, kind):
    target, before, _ = SETTINGS[kind]
    refuse(host, target)
    run = apply(host, journal)
    assert run.state == "applied_partly"
    assert "the kernel refuses it" in run.error
    made = {each: after for each, _, after in SETTINGS.values()} | {SCOPE: isolated("4-7"), target: before}
    assert host.states == made
    assert [entry.state for entry in journal.entries("run-1")].count("done") == len(SETTINGS) + 1
    assert rollback(host, journal).state == "rolled_back"
    assert host.states == BEFORE
    assert set(host.kernel().values()) == {"0-7"}


@pytest.mark.parametrize("kind", SETTINGS)
def test_all_or_nothing_leaves_nothing(host, journal, kind):
    refuse(host, SETTINGS[kind][0])
    assert apply(host, journal, all_or_nothing=True).state == "undone"
    assert host.states == BEFORE


@pytest.mark.parametrize("also", [(), (SETTINGS["irq"][0],)], ids=["alone", "after an interrupt"])
@pytest.mark.parametrize("refused", [SCOPE, vcpu(0)], ids=str)
def test_a_refused_partition_or_pin_undoes_the_run(host, journal, refused, also):
    refuse(host, refused, *also)
    run = apply(host, journal)
    assert (run.state, host.states, set(host.kernel().values())) == ("undone", BEFORE, {"0-7"})


@pytest.mark.parametrize(("policy", "state"), [("back", "undone"), ("forward", "applied_partly")])
@pytest.mark.parametrize("point", range(5))
def test_a_run_that_was_killed_after_the_refusal(host, journal, policy, state, point, monkeypatch):
    """The process dies before one of the writes after the refusal."""
    irq = SETTINGS["irq"][0]

    class Killed(BaseException):
        pass

    def die(*_, **__):
        raise Killed

    def write(written):
        if written[0] == str(irq):
            raise ApplyFailed(str(irq), "the kernel refuses it")
        if len(host.writes) == point:
            die()

    host.before_write = write
    with monkeypatch.context() as dead:
        dead.setattr("pinner.apply.transaction.Transaction._undo_groups", undo_one(die))
        dead.setattr(journal, "end", die)
        with pytest.raises(Killed):
            apply(host, journal)
    assert next(entry.state for entry in journal.entries("run-1")) == "failed"
    refuse(host, irq)
    journal._notes.clear()  # they died with the process
    run = recover(host, journal, policy, lambda: NOON)
    assert (run.state, host.states[irq]) == (state, SETTINGS["irq"][1])
    assert host.states[SCOPE] == (MEMBER if policy == "back" else isolated("4-7"))


def undo_one(die):
    """The undo of one group works, and the process is dead when it would undo all of them."""
    from pinner.apply.transaction import Transaction

    real = Transaction._undo_groups

    def undo(self, groups):
        return real(self, groups) if len(groups) == 1 else die()

    return undo


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("ring", ApplyFailed("ring ens1", "the driver does not tell it: Device or resource busy")),
        ("irq", NotPermitted("irq 24", "only root may read it")),
        ("guest_rps", Busy("guest g1", "its agent does not tell it", overdue=False)),
        ("guest_rps", HostUnreachable("h1", "libvirt does not tell it")),
    ],
)
def test_a_setting_that_cannot_be_read_fails_alone_and_is_not_forgotten(host, journal, kind, error):
    """A guest whose agent answers a snapshot and then hangs keeps nothing else from its place."""
    silent_one, before, after = SETTINGS[kind]
    answer = host.state

    def silent(target):
        if target == silent_one:
            raise error
        return answer(target)

    host.state = silent
    run = apply(host, journal)
    assert (run.state, host.states[silent_one]) == ("applied_partly", before)
    assert str(error) in run.error
    host.state = answer
    assert rollback(host, journal).state == "rolled_back"
    assert apply(host, journal, run="run-2").state == "applied"
    host.state = silent
    undone = rollback(host, journal, undoes="run-2", name="run-8")
    assert (undone.state, host.states[silent_one]) == ("rolled_back_partly", after)
    host.state = answer
    assert rollback(host, journal, undoes="run-2", name="run-7").state == "rolled_back"
    assert host.states == BEFORE


def test_a_guest_that_says_another_thing_each_time_makes_no_plan_stale(host, journal):
    """Else it would keep all other guests and processes from their CPUs, plan after plan."""
    host.states[RPS_OF_A_GUEST] = GuestCpus(cpus("1"))
    run = apply(host, journal)
    assert (run.state, host.states[SCOPE]) == ("applied_partly", isolated("4-7"))
    assert "another program changed it just now" in run.error
    assert host.states[RPS_OF_A_GUEST] == GuestCpus(cpus("1"))


def test_a_plan_for_the_inside_of_a_guest_alone_is_made_or_fails(host, journal):
    target, before, after = SETTINGS["guest_rps"]
    plan = host.plan(StateChange(target, before, after, "so"))

    def apply_it(run):
        return executor.apply(plan, make_run(run), host, journal, lambda: NOON, lambda entry, total: None)

    assert apply_it("run-1").state == "applied"
    assert (apply_it("run-2").state, journal.entries("run-2")) == ("applied", ())
    host.states[target] = GuestCpus(cpus("1"))
    refused = apply_it("run-3")
    assert (refused.state, host.states[target]) == ("undone", GuestCpus(cpus("1")))
    assert "another program changed it just now" in refused.error


@pytest.mark.parametrize("policy", ["back", "forward"])
@pytest.mark.parametrize(
    ("kind", "granted"), [("ring", Number(4080)), ("coalescing", Coalescing(48)), ("guest_rps", GuestCpus(cpus("0")))]
)
def test_a_run_that_was_killed_after_the_kernel_rounded_a_value(host, journal, kind, granted, policy):
    """Nothing but the run's own entry says whose value that is."""
    target, before, after = SETTINGS[kind]

    class Killed(BaseException):
        pass

    def round_it(made, value):
        host.states[made] = granted if value == after else value
        if value == after:
            raise ApplyFailed(str(made), f"asked for {after}, the kernel says {granted}")

    def dies(made, value):
        host.states[made] = granted
        raise Killed

    host.set_state = dies
    plan = host.plan(StateChange(target, before, after, "so"))
    with pytest.MonkeyPatch.context() as dead, pytest.raises(Killed):
        dead.setattr("pinner.apply.transaction.Transaction._undo_groups", lambda *_: None)
        dead.setattr("pinner.apply.notes.Notes.close", lambda *_: None)
        executor.apply(plan, make_run("run-1"), host, journal, lambda: NOON, lambda entry, total: None)
    host.set_state = round_it
    journal._notes.clear()  # they died with the process
    run = recover(host, journal, policy, lambda: NOON)
    assert (run.state, host.states[target]) == ("undone", before), run.error
