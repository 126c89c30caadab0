"""A rollback of one run, where later runs found masks that threads had inherited from its changes."""

from dataclasses import replace

import pytest
from support.fakes.in_memory_host import InMemoryHost, daemon, emulator, memory, vcpu
from support.values import MEMBER, NOON, cpus, isolated, make_run

from pinner.apply import executor, recover
from pinner.model.change import StateChange, Target, ThreadMask
from pinner.model.machine.interrupts import DeviceIrq
from pinner.model.plan.plan import GuestMemory

pytestmark = pytest.mark.fault(50)


@pytest.fixture
def host():
    host = InMemoryHost()
    host.add(emulator(), "0-7")
    host.add(daemon(300), "0-7")
    return host


def apply(host, journal, name, *changes):
    host.clock += 5
    ended = executor.apply(host.plan(*changes), make_run(name), host, journal, lambda: NOON, lambda *_: None)
    assert ended.state == "applied"


def rollback(host, journal, undoes=""):
    run = make_run(f"back-{undoes}", kind="rollback", plan="", undoes=undoes)
    ended = executor.rollback(run, host, journal, lambda: NOON, lambda *_: None)
    assert (ended.state, ended.error) == ("rolled_back", "")


def mask(host, target):
    return str(host.threads[target][0].cpus)


@pytest.mark.parametrize("then", ["r2", ""])
def test_a_placed_child_gets_no_mask_back_of_a_run_that_was_rolled_back_before(host, journal, then):
    """Also a rollback of all runs knows nothing any more of the run that was rolled back."""
    apply(host, journal, "r1", host.change(daemon(300), "0"))
    child = host.fork(daemon(300), 900)
    apply(host, journal, "r2", host.change(child, "1"))
    rollback(host, journal, "r1")
    assert (mask(host, daemon(300)), mask(host, child)) == ("0-7", "1")
    rollback(host, journal, then)
    assert mask(host, child) == "0-7"


def test_a_plugged_in_vcpu_gets_no_mask_back_of_the_emulators_run(host, journal):
    apply(host, journal, "r1", host.change(emulator(), "1"))
    host.add(vcpu(1), "1")
    host.threads[vcpu(1)] = [replace(thread, started=host.clock + 1) for thread in host.threads[vcpu(1)]]
    apply(host, journal, "r2", host.change(vcpu(1), "5"))
    rollback(host, journal, "r1")
    rollback(host, journal, "r2")
    assert mask(host, vcpu(1)) == "0-7"


def test_a_line_of_masks_is_undone_in_any_order(host, journal):
    apply(host, journal, "r1", host.change(daemon(300), "0"))
    child = host.fork(daemon(300), 900)
    apply(host, journal, "r2", host.change(child, "1"))
    grandchild = host.fork(child, 901)
    apply(host, journal, "r3", host.change(grandchild, "2"))
    for run in ("r2", "r1", "r3"):
        rollback(host, journal, run)
    assert {mask(host, each) for each in (daemon(300), child, grandchild)} == {"0-7"}


def test_a_mask_that_a_run_which_stays_gave_to_the_same_process_comes_back(host, journal):
    """The child was moved to CPU 0 by r2 itself. It had only inherited its first mask."""
    apply(host, journal, "r1", host.change(daemon(300), "0"))
    child = host.fork(daemon(300), 900)
    apply(host, journal, "r2", host.change(child, "1"))
    apply(host, journal, "r3", host.change(child, "0"))
    apply(host, journal, "r4", host.change(child, "2"))
    rollback(host, journal, "r1")
    rollback(host, journal, "r4")
    assert mask(host, child) == "0"


@pytest.mark.parametrize(("service", "comes_back"), [("a.service", "0-7"), ("b.service", "0"), ("", "0-7")])
def test_a_process_of_another_service_has_the_mask_from_elsewhere(host, journal, service, comes_back):
    lineage = host.lineage

    def read(target):
        owner = {daemon(300): "a.service"}.get(target, service)
        return replace(lineage(target), service=owner) if target.kind == "process" else lineage(target)

    host.lineage = read
    apply(host, journal, "r1", host.change(daemon(300), "0"))
    other = host.fork(daemon(300), 900)
    del host.parents[other]
    apply(host, journal, "r2", host.change(other, "1"))
    rollback(host, journal, "r1")
    rollback(host, journal, "r2")
    assert mask(host, other) == comes_back


def test_an_older_process_keeps_its_prior_mask(host, journal):
    older = host.add(daemon(301), "0")
    apply(host, journal, "r1", host.change(daemon(300), "0"))
    apply(host, journal, "r2", host.change(older, "1"))
    rollback(host, journal, "r1")
    rollback(host, journal, "r2")
    assert mask(host, older) == "0"


@pytest.mark.fault(32)
def test_a_recovery_of_the_rollback_corrects_the_later_run_too(host, journal):
    apply(host, journal, "r1", host.change(daemon(300), "0"))
    child = host.fork(daemon(300), 900)
    apply(host, journal, "r2", host.change(child, "1"))
    run = make_run("back", kind="rollback", plan="", undoes="r1")
    journal.begin(run)
    journal.leave(run)
    assert recover.recover(host, journal, "back", lambda: NOON).state == "rolled_back"
    rollback(host, journal, "r2")
    assert mask(host, child) == "0-7"


@pytest.mark.fault(32)
@pytest.mark.parametrize("at_its_end", [False, True])
def test_a_rollback_that_died_corrects_the_later_run_once(host, journal, monkeypatch, at_its_end):
    """The prior mask of the child's parent is the mask that the run gave to the other process."""
    parent = host.add(daemon(302), "0")
    apply(host, journal, "r1", host.change(daemon(300), "0"), host.change(parent, "1"))
    child = host.fork(parent, 900)
    apply(host, journal, "r2", host.change(child, "2"))

    def die(*_):
        journal.entries("r1")  # stores the notes
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(*((journal, "end") if at_its_end else (host, "before_write")), die)
        with pytest.raises(KeyboardInterrupt):
            rollback(host, journal, "r1")
    assert {entry.state for entry in journal.entries("r1")} == {"undone" if at_its_end else "done"}
    assert recover.recover(host, journal, "back", lambda: NOON).state == "rolled_back"
    rollback(host, journal, "r2")
    assert (mask(host, parent), mask(host, child)) == ("0", "0")


@pytest.mark.parametrize("order", [("r1", "r2"), ("r2",), ("",)])
@pytest.mark.parametrize("target", [emulator(), vcpu(0)])
def test_the_main_thread_and_the_vcpus_of_a_guest_inherit_no_mask_of_a_vcpu(host, journal, target, order):
    """The guest has restarted, and another program moves the target to the CPUs that r1 gave to a vCPU."""
    host.add(vcpu(0), "0-7")
    host.add(vcpu(1), "5")
    apply(host, journal, "r1", host.change(vcpu(1), "2-3"))
    for part in (target, vcpu(1)):
        host.threads[part] = [replace(thread, started=host.clock + 1) for thread in host.threads[part]]
    host.move(host.threads[target][0].tid, "2-3")
    apply(host, journal, "r2", host.change(target, "1"))
    for run in order:
        rollback(host, journal, run)
    assert mask(host, target) == "2-3"


@pytest.mark.parametrize("then", ["r2", ""])
@pytest.mark.parametrize(("target", "other"), [(emulator(), vcpu(0)), (daemon(300), daemon(400))])
def test_a_new_thread_has_the_mask_from_its_own_target(host, journal, target, other, then):
    """The run gave the same mask to another target, which had other CPUs before."""
    host.add(other, "5")
    apply(host, journal, "r1", host.change(target, "1"), host.change(other, "1"))
    host.threads[target][-1] = ThreadMask(host.bear(target, "1"), host.clock + 1, cpus("1"))
    host.move(host.threads[target][0].tid, "6")
    apply(host, journal, "r2", host.change(target, "1"))
    rollback(host, journal, "r1")
    rollback(host, journal, then)
    assert ({str(thread.cpus) for thread in host.threads[target]}, mask(host, other)) == ({"0-7"}, "5")


@pytest.mark.parametrize(("target", "other"), [(emulator(), vcpu(0)), (daemon(300), daemon(400))])
def test_a_new_thread_keeps_the_mask_that_an_earlier_run_gave_to_its_own_target(host, journal, target, other):
    """r2 found that mask, and gave it to another target, which had other CPUs before."""
    host.add(other, "5")
    host.add(target, "0-7", "0-7", "0-7")
    apply(host, journal, "r1", host.change(target, "1"))
    host.move(host.threads[target][1].tid, "6")
    apply(host, journal, "r2", host.change(target, "1"), host.change(other, "1"))
    host.threads[target][-1] = ThreadMask(host.bear(target, "1"), host.clock + 1, cpus("1"))
    host.move(host.threads[target][1].tid, "6")
    apply(host, journal, "r3", host.change(target, "1"))
    rollback(host, journal, "r2")
    rollback(host, journal, "r3")
    assert (str(host.threads[target][-1].cpus), mask(host, other)) == ("1", "5")


@pytest.mark.parametrize("target", [emulator(), daemon(300)])
@pytest.mark.parametrize("then", ["r2", ""])
def test_a_run_that_mended_the_placement_gives_back_no_mask_of_the_run_before(host, journal, target, then):
    """Another program moves one thread, and r2 moves it back: for the other threads r2 found the mask of r1."""
    host.add(target, "0-7", "0-7")
    apply(host, journal, "r1", host.change(target, "0"))
    born = host.bear(target, "0")
    host.threads[target][-1] = replace(host.threads[target][-1], started=host.clock + 1)
    host.move(host.threads[target][0].tid, "5")
    apply(host, journal, "r2", host.change(target, "0"))
    rollback(host, journal, "r1")
    apply(host, journal, "r3", host.change(target, "0"))
    if then:
        rollback(host, journal, "r3")
    run = make_run("last", kind="rollback", plan="", undoes=then)
    executor.rollback(run, host, journal, lambda: NOON, lambda *_: None)
    assert host.kernel()[born] == "0-7"
    assert str(host.threads[target][1].cpus) == "0-7"


@pytest.mark.parametrize("order", [("r1", "r2"), ("r1", "")])
@pytest.mark.parametrize("target", [emulator(), daemon(300)])
def test_a_thread_that_was_moved_back_is_undone_in_any_order(host, journal, target, order):
    """The rollback of r1 undid the change of r2, too: no other program did that."""
    apply(host, journal, "r1", host.change(target, "0"))
    host.move(host.threads[target][0].tid, "5")
    apply(host, journal, "r2", host.change(target, "0"))
    for run in order:
        rollback(host, journal, run)
        assert mask(host, target) == "0-7"


IRQ = DeviceIrq(24, "ens1-rx-0", "0000:3b:00.0", cpus("0-7")).target


@pytest.mark.parametrize("order", [("r1", "r2", "r3"), ("r1", "r3", "r2"), ("r2", "r3"), ("r1", ""), ("",)])
def test_a_setting_that_was_set_again_is_undone_in_any_order(host, journal, order):
    """irqbalance moves an interrupt, and a policy puts it back: the rollback of the first run undoes all of that."""
    for number, found in enumerate(("0-7", "5", "6"), 1):
        host.states[IRQ] = cpus(found)
        apply(host, journal, f"r{number}", StateChange(IRQ, cpus(found), cpus("0"), "so"))
    for run in order:
        rollback(host, journal, run)
    assert host.states[IRQ] == cpus("5" if order[0] == "r2" else "0-7")


@pytest.mark.fault(32)
def test_a_recovery_of_the_rollback_leaves_a_setting_that_the_run_found_gone(host, journal):
    """Only the second run has changed it."""
    apply(host, journal, "r1", StateChange(IRQ, cpus("0-7"), cpus("0"), "so"), host.change(daemon(300), "0"))
    assert [entry.state for entry in journal.entries("r1")] == ["gone", "done"]
    host.states[IRQ] = cpus("5")
    apply(host, journal, "r2", StateChange(IRQ, cpus("5"), cpus("0"), "so"))
    run = make_run("back", kind="rollback", plan="", undoes="r1")
    journal.begin(run)
    journal.leave(run)
    assert recover.recover(host, journal, "back", lambda: NOON).state == "rolled_back"
    assert host.states[IRQ] == cpus("0")
    rollback(host, journal, "r2")
    assert host.states[IRQ] == cpus("5")


@pytest.mark.parametrize("then", ["r2", ""])
@pytest.mark.parametrize("half_made", [False, True])
def test_a_later_partition_gives_back_no_mask_of_the_run(host, journal, then, half_made):
    """The partition found the masks of all threads; those of CPUs outside are left alone."""
    scope = Target("partition", "machine.slice/g1.scope", None, "g1.scope")
    host.states[scope] = MEMBER
    apply(host, journal, "r1", host.change(daemon(300), "0"))
    apply(host, journal, "r2", StateChange(scope, MEMBER, isolated("4-7"), "so"))
    assert mask(host, daemon(300)) == "0"
    rollback(host, journal, "r1")
    run = make_run("last", kind="rollback", plan="", undoes=then)
    if half_made:
        journal.begin(run)
        journal.leave(run)
        assert recover.recover(host, journal, "back", lambda: NOON).state == "rolled_back"
    else:
        executor.rollback(run, host, journal, lambda: NOON, lambda *_: None)
    assert (mask(host, daemon(300)), host.states[scope]) == ("0-7", MEMBER)


def test_a_later_partition_gives_back_the_mask_that_another_program_had_set(host, journal):
    """Neither the rollback of the first run nor that of the partition takes it for a mask of the first run."""
    scope = Target("partition", "machine.slice/g1.scope", None, "g1.scope")
    host.states[scope] = MEMBER
    apply(host, journal, "r1", host.change(daemon(300), "0"))
    host.move(host.threads[daemon(300)][0].tid, "6")
    apply(host, journal, "r2", StateChange(scope, MEMBER, isolated("4-7"), "so"))
    undo = make_run("back", kind="rollback", plan="", undoes="r1")
    assert "stays there" in executor.rollback(undo, host, journal, lambda: NOON, lambda *_: None).error
    assert {thread.tid: str(thread.cpus) for thread in journal.entries("r2")[0].found} == host.kernel()
    rollback(host, journal, "r2")
    assert (mask(host, daemon(300)), host.states[scope]) == ("6", MEMBER)


def test_a_later_move_of_memory_is_left_alone_and_undone_by_its_own_rollback(host, journal):
    host.add(vcpu(0), "0-7")
    host.per_node[memory()] = {1: 1024}
    apply(host, journal, "r1", host.change(emulator(), "0"))
    host.clock += 5
    plan = replace(host.plan(host.change(vcpu(0), "1")), memory=(GuestMemory(memory(), {1: 1024}, 0, 0, 0),))
    run = make_run("r2", migrate_memory=True)
    assert executor.apply(plan, run, host, journal, lambda: NOON, lambda *_: None).state == "applied"
    rollback(host, journal, "r1")
    assert host.per_node[memory()] == {0: 1024, 1: 0}
    rollback(host, journal, "r2")
    assert host.per_node[memory()] == {0: 0, 1: 1024}
