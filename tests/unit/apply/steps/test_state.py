"""Partitions: set, read back, every thread's mask set again, and all of it undone."""

import pytest
from support.fakes.in_memory_host import InMemoryHost, daemon, vcpu
from support.values import MEMBER, NOON, isolated, make_run, root

from pinner.apply import executor
from pinner.model.change import StateChange, Target
from pinner.model.errors import ApplyFailed, StalePlan
from pinner.model.states import Coalescing

SCOPE = Target("partition", "machine.slice/g1.scope", None, "g1.scope")
MADE = StateChange(SCOPE, MEMBER, isolated("4-7"), "so")


@pytest.fixture
def host():
    host = InMemoryHost()
    host.add(vcpu(0), "0-7")
    host.add(daemon(500), "0-7", "2", "0-1")
    host.states[SCOPE] = MEMBER
    return host


def apply(host, journal, *changes):
    return executor.apply(host.plan(*changes), make_run(), host, journal, lambda: NOON, lambda entry, total: None)


def rollback(host, journal):
    undo = make_run("run-2", kind="rollback", undoes="run-1")
    return executor.rollback(undo, host, journal, lambda: NOON, lambda entry, total: None)


def test_masks_survive_a_partition_and_come_back_with_it(host, journal):
    before = host.kernel()
    seen = []
    host.before_write = lambda write: seen.append((write, journal.entries("run-1")[1].found))
    host.reset = "0-3"
    assert apply(host, journal, host.change(daemon(500), "2-3"), MADE).state == "applied"
    assert host.states[SCOPE] == isolated("4-7")
    assert set(host.kernel().values()) == {"0-3", "2-3"}
    assert {tid: mask for tid, mask in host.kernel().items() if tid >= 200} == dict.fromkeys((200, 201, 202), "2-3")
    journaled = next(found for (what, _), found in seen if what == str(SCOPE))
    assert {str(thread.cpus) for thread in journaled} == {"0-7", "2-3"}
    host.reset = "0-7"
    assert rollback(host, journal).state == "rolled_back"
    assert host.states[SCOPE] == MEMBER
    assert host.kernel() == before


def test_a_refused_partition_leaves_everything_as_it_was(host, journal):
    before = host.kernel()

    def refuse(write):
        if write == (str(SCOPE), "isolated 4-7"):
            raise ApplyFailed(str(SCOPE), "the kernel says 'isolated invalid'")

    host.before_write = refuse
    run = apply(host, journal, host.change(daemon(500), "2-3"), MADE)
    assert (run.state, host.states[SCOPE]) == ("undone", MEMBER)
    assert host.kernel() == before


def test_a_partition_that_another_program_made_is_stale(host, journal):
    host.states[SCOPE] = root("4-7")
    with pytest.raises(StalePlan, match=r"partition g1\.scope is 'root 4-7', no longer 'member'"):
        apply(host, journal, MADE)
    assert host.states[SCOPE] == root("4-7")


def test_a_partition_that_another_program_changed_stays(host, journal):
    apply(host, journal, MADE)
    host.states[SCOPE] = root("4-7")
    assert rollback(host, journal).state == "rolled_back_partly"
    assert host.states[SCOPE] == root("4-7")


def test_a_partition_that_the_kernel_made_invalid_is_undone(host, journal):
    apply(host, journal, MADE)
    host.states[SCOPE] = isolated("4-7", "Cpu list in cpuset.cpus not exclusive")
    assert rollback(host, journal).state == "rolled_back"
    assert host.states[SCOPE] == MEMBER


def test_a_partition_that_ended_with_its_guest_is_gone(host, journal):
    apply(host, journal, MADE)
    del host.states[SCOPE]
    assert rollback(host, journal).state == "rolled_back_partly"


def test_a_thread_outside_that_another_program_has_moved_since_keeps_its_mask(host, journal):
    """The partition took no CPU of its mask, so the kernel has not changed that mask."""
    assert apply(host, journal, MADE).state == "applied"
    tid = next(tid for tid, mask in host.kernel().items() if mask == "2")
    host.move(tid, "1")
    assert rollback(host, journal).state == "rolled_back"
    assert host.kernel()[tid] == "1"


def test_a_thread_that_another_program_moves_while_others_are_restored_keeps_its_mask(host, journal):
    host.reset = "0-3"
    assert apply(host, journal, MADE).state == "applied"
    first, second = (tid for tid, mask in host.kernel().items() if mask in ("2", "0-1"))
    host.reset = "0-7"
    host.before_write = lambda write: host.move(second, "5") if write[0] == str(first) else None
    assert rollback(host, journal).state == "rolled_back"
    assert (host.kernel()[first], host.kernel()[second]) == ("2", "5")


def test_a_thread_that_another_program_moves_when_all_were_read_keeps_its_mask(host, journal):
    """To read the threads of a large host takes a second. Since Linux 6.2 the kernel resets no mask then."""
    host.reset = "0-3"
    assert apply(host, journal, MADE).state == "applied"
    (tid,) = (tid for tid, mask in host.kernel().items() if mask == "2")
    host.reset = ""
    host.before_write = lambda write: host.move(tid, "5") if write[0] == str(SCOPE) else None
    assert rollback(host, journal).state == "rolled_back"
    assert host.kernel()[tid] == "5"


def test_numbers_that_a_driver_adapts_by_itself_are_no_other_programs(host, journal):
    card = Target("coalescing", "ens1 2", None, "ens1")
    host.states[card] = Coalescing(64, 32, is_adaptive=True)
    fixed = StateChange(card, Coalescing(8, 16, is_adaptive=True), Coalescing(32, 32), "so")
    assert apply(host, journal, fixed).state == "applied"
    host.states[card] = Coalescing(96, 64, is_adaptive=True)  # a rollback that died had undone it
    written = []
    host.before_write = written.append
    assert rollback(host, journal).state == "rolled_back"
    assert written == []


def test_an_adapting_driver_has_what_a_plan_wants_of_it(host, journal):
    card = Target("coalescing", "ens1 2", None, "ens1")
    host.states[card] = Coalescing(64, 32, is_adaptive=True)
    adapting = StateChange(card, Coalescing(0), Coalescing(8, 16, is_adaptive=True), "so")
    written = []
    host.before_write = written.append
    assert apply(host, journal, adapting).state == "applied"
    assert written == []


def test_a_rollback_that_died_after_the_numbers_of_an_adapting_driver_ends_when_it_is_repeated(host, journal):
    """ice takes the numbers before it adapts them."""
    card = Target("coalescing", "ens1 2", None, "ens1")
    host.states[card] = Coalescing(64, 0, is_adaptive=True)
    apply(host, journal, StateChange(card, host.states[card], Coalescing(32), "so"))
    host.states[card] = Coalescing(64)
    assert rollback(host, journal).state == "rolled_back"
    assert host.states[card] == Coalescing(64, 0, is_adaptive=True)
