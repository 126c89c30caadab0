"""Threads of a guest that inherit a mask from another part: a rollback gives them the prior mask of that part."""

from dataclasses import replace

import pytest
from support.fakes.in_memory_host import InMemoryHost, emulator, vcpu
from support.values import NOON, cpus, make_run

from pinner.apply import executor
from pinner.model.change import Target, ThreadMask
from pinner.model.errors import ApplyFailed

pytestmark = pytest.mark.fault(50)

WORKER = 901
IOTHREAD = Target("iothread", "uuid-g1", 1, "g1")


@pytest.fixture
def host():
    host = InMemoryHost()
    for target in (emulator(), vcpu(0), IOTHREAD):
        host.add(target, "0-7")
    return host


def apply(host, journal, name, *changes):
    host.clock += 10
    ended = executor.apply(host.plan(*changes), make_run(name), host, journal, lambda: NOON, lambda *_: None)
    assert ended.state == "applied"


def rollback(host, journal, *order):
    """Of these runs; an empty name means all runs."""
    for undoes in order:
        ended = undo(host, journal, undoes)
        assert (ended.state, ended.error) == ("rolled_back", "")


def undo(host, journal, undoes):
    host.clock += 10
    run = make_run(f"back-{undoes}", kind="rollback", plan="", undoes=undoes)
    return executor.rollback(run, host, journal, lambda: NOON, lambda *_: None)


def start(host, target, source, tid=WORKER):
    """A new thread of the target, with the mask of the source."""
    host.clock += 10
    host.threads.setdefault(target, []).append(ThreadMask(tid, host.clock, host.threads[source][0].cpus))


def restart(host):
    """The guest restarts, in new threads."""
    host.clock += 10
    for target, threads in host.threads.items():
        host.threads[target] = [replace(thread, started=host.clock, cpus=cpus("0-7")) for thread in threads[:1]]


@pytest.mark.parametrize("order", ["r1", ""])
@pytest.mark.parametrize(("source", "target"), [(IOTHREAD, emulator()), (emulator(), vcpu(1))])
def test_a_part_that_no_run_placed_gets_the_prior_mask_of_its_source(host, journal, source, target, order):
    apply(host, journal, "r1", host.change(source, "4"))
    start(host, target, source)
    rollback(host, journal, order)
    assert set(host.kernel().values()) == {"0-7"}
    entry = next(entry for entry in journal.entries(f"back-{order}" if not order else "r1"))
    assert [(thread.tid, str(thread.cpus)) for thread in entry.inheritors] == [(WORKER, "4")]


def test_a_vcpu_whose_cpuset_a_rollback_left_small_is_pinned(host, journal):
    """libvirt cannot restore "not pinned", so the kernel refuses more CPUs until the vCPU is pinned again."""
    apply(host, journal, "r1", host.change(emulator(), "1"))
    start(host, vcpu(1), emulator())

    def set_mask(thread, *read):
        if thread.tid == WORKER and not any(write == ("guest g1 vcpu 1", "0-7") for write in host.writes):
            raise ApplyFailed("thread 901", "the kernel grants less")
        return InMemoryHost.set_mask(host, thread, *read)

    host.set_mask = set_mask
    rollback(host, journal, "r1")
    assert host.kernel()[WORKER] == "0-7"


@pytest.mark.parametrize("order", [("r2", "r1"), ("r1", "r2"), ("r2", ""), ("",)])
def test_a_vcpu_that_a_run_placed_later_gets_it_in_any_order(host, journal, order):
    apply(host, journal, "r1", host.change(emulator(), "1"))
    start(host, vcpu(1), emulator())
    apply(host, journal, "r2", host.change(vcpu(1), "5"))
    rollback(host, journal, *order)
    assert set(host.kernel().values()) == {"0-7"}


def test_a_vcpu_that_a_run_places_after_the_rollback_of_its_source(host, journal):
    apply(host, journal, "r1", host.change(emulator(), "1"))
    start(host, vcpu(1), emulator())
    rollback(host, journal, "r1")
    apply(host, journal, "r2", host.change(vcpu(1), "5"))
    rollback(host, journal, "")
    assert set(host.kernel().values()) == {"0-7"}


def test_a_vcpu_that_a_run_placed_stays(host, journal):
    apply(host, journal, "r1", host.change(emulator(), "1"))
    start(host, vcpu(1), emulator())
    apply(host, journal, "r2", host.change(vcpu(1), "5"))
    apply(host, journal, "r3", host.change(vcpu(1), "1"))
    rollback(host, journal, "r1")
    assert host.kernel()[WORKER] == "1"


def test_a_worker_has_its_mask_from_a_main_thread_with_the_same_one(host, journal):
    host.move(100, "4")
    apply(host, journal, "r1", host.change(IOTHREAD, "4"))
    start(host, emulator(), emulator())
    rollback(host, journal, "r1")
    assert (host.kernel()[100], host.kernel()[WORKER]) == ("4", "4")


def test_the_threads_of_a_restarted_guest_inherit_nothing_of_a_run_before(host, journal):
    """Its operator pins a vCPU to the CPUs that the run gave to the emulator."""
    apply(host, journal, "r1", host.change(emulator(), "1"))
    restart(host)
    host.move(200, "1")
    undo(host, journal, "r1")
    assert host.kernel()[200] == "1"


def test_a_vcpu_inherits_of_the_first_run_after_a_restart_of_its_guest(host, journal):
    """A rollback of all runs leaves a vCPU on the mask that an operator set before that run, and which an earlier run
    had given to the emulator."""
    apply(host, journal, "r1", host.change(emulator(), "1"))
    restart(host)
    host.move(200, "1")
    apply(host, journal, "r2", host.change(emulator(), "2"))
    start(host, vcpu(1), emulator())
    rollback(host, journal, "")
    assert (host.kernel()[200], host.kernel()[WORKER]) == ("1", "0-7")


@pytest.mark.parametrize("order", [("",), ("r1", "r2"), ("r2", "r1")])
def test_a_worker_of_an_iothread_gets_the_iothreads_prior_mask(host, journal, order):
    """Not that of the main thread, which another program had moved."""
    host.move(100, "0-3")
    apply(host, journal, "r1", host.change(IOTHREAD, "4"))
    start(host, emulator(), IOTHREAD)
    apply(host, journal, "r2", host.change(emulator(), "6"))
    rollback(host, journal, *order)
    assert (host.kernel()[100], host.kernel()[WORKER]) == ("0-3", "0-7")


@pytest.mark.parametrize("order", [("",), ("r1", "r2"), ("r2", "r1")])
def test_a_vcpu_gets_the_prior_mask_of_the_main_thread(host, journal, order):
    """Not that of the workers, although they are more: an iothread on other CPUs has started them."""
    host.move(300, "5")
    for tid in (902, 903):
        start(host, emulator(), IOTHREAD, tid)
    apply(host, journal, "r1", host.change(emulator(), "1"))
    start(host, vcpu(1), emulator())
    apply(host, journal, "r2", host.change(vcpu(1), "6"))
    rollback(host, journal, *order)
    assert {tid: host.kernel()[tid] for tid in (100, 902, 903, WORKER)} == {100: "0-7", 902: "5", 903: "5", 901: "0-7"}


def test_a_workers_source_is_the_part_that_had_the_mask_at_its_start(host, journal):
    """Not the iothread, which an earlier run had given the same mask, and which another program had moved before."""
    host.move(300, "5")
    apply(host, journal, "r1", host.change(IOTHREAD, "1"))
    apply(host, journal, "r2", host.change(IOTHREAD, "2"))
    apply(host, journal, "r3", host.change(vcpu(0), "1"))
    start(host, emulator(), vcpu(0))
    apply(host, journal, "r4", host.change(emulator(), "4"))
    rollback(host, journal, "")
    assert (host.kernel()[300], host.kernel()[WORKER]) == ("5", "0-7")


@pytest.mark.parametrize("order", ["r1", ""])
@pytest.mark.parametrize("source", [IOTHREAD, vcpu(0)])
def test_a_worker_of_a_part_is_restored_where_the_run_placed_the_emulator_too(host, journal, source, order):
    apply(host, journal, "r1", host.change(emulator(), "4"), host.change(source, "1"))
    start(host, emulator(), source)
    rollback(host, journal, order)
    assert set(host.kernel().values()) == {"0-7"}


@pytest.mark.parametrize("order", [("r2", "r1"), ("",)])
def test_a_worker_is_restored_although_its_part_has_an_older_change(host, journal, order):
    """The later run moved it; the earlier one, of the emulator, did not know it."""
    apply(host, journal, "r1", host.change(emulator(), "0-1"), host.change(vcpu(0), "2-3"))
    start(host, emulator(), vcpu(0))
    apply(host, journal, "r2", host.change(emulator(), "8"))
    rollback(host, journal, *order)
    assert set(host.kernel().values()) == {"0-7"}


def test_a_thread_of_a_placed_vcpu_that_no_run_moved_gets_the_emulators_prior_mask(host, journal):
    """It was unplugged, and plugged again."""
    apply(host, journal, "r1", host.change(emulator(), "1"), host.change(vcpu(0), "2"))
    host.threads[vcpu(0)] = []
    start(host, vcpu(0), emulator())
    rollback(host, journal, "")
    assert set(host.kernel().values()) == {"0-7"}


def test_a_worker_is_restored_after_an_undo_of_its_part_that_left_another_thread(host, journal):
    """Another program moved the main thread away from the run's mask, so the run's change stays in force."""
    apply(host, journal, "r1", host.change(IOTHREAD, "4"))
    start(host, emulator(), IOTHREAD)
    apply(host, journal, "r2", host.change(emulator(), "6"))
    host.move(100, "0-3")
    undo(host, journal, "r2")
    rollback(host, journal, "r1")
    assert (host.kernel()[100], host.kernel()[WORKER]) == ("0-3", "0-7")
