"""Several guests are changed at once, each in its own order, and processes one after the other."""

import signal
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest
from support.fakes.in_memory_host import InMemoryHost, daemon, emulator, vcpu
from support.values import NOON, make_run

from pinner.apply import executor
from pinner.apply.recover import _under_way, recover
from pinner.apply.side_by_side import parts_of, side_by_side, with_busy_last
from pinner.model.change import StateChange, group_of
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed, Busy
from pinner.model.run.journal import Entry
from pinner.model.settings.inside import GuestQueue, GuestRps
from pinner.model.states import GuestCpus

GUESTS = [f"g{number}" for number in range(12)]


class WideHost(InMemoryHost):
    """An in-memory host whose guests are changed at once; each write takes a moment."""

    guests_at_once = 4

    def __init__(self) -> None:
        super().__init__()
        self.under_way: Counter[str] = Counter()
        self.most = 0
        self.order: list[tuple[str, str]] = []
        self._lock = threading.Lock()

    def pin(self, target, cpus, *, persist):
        with self._lock:
            self.under_way[target.owner] += 1
            self.most = max(self.most, self.under_way.total())
            assert self.under_way[target.owner] == 1, "one change of a guest after the other"
            self.order.append((target.owner, str(target)))
        time.sleep(0.002)
        try:
            with self._lock:
                super().pin(target, cpus, persist=persist)
        finally:
            with self._lock:
                self.under_way[target.owner] -= 1


@pytest.fixture
def host():
    host = WideHost()
    host.add(daemon(400), "0-7", "2-5")
    host.add(daemon(500), "0-7")
    for guest in GUESTS:
        host.add(emulator(guest), "0-7", "0-3")
        for number in range(3):
            host.add(vcpu(number, guest), "0-7")
    host.before = host.kernel()
    return host


def the_plan(host):
    wanted = {daemon(400): "0", daemon(500): "0"} | {emulator(each): "1" for each in GUESTS}
    wanted |= {vcpu(number, each): "2-7" for number in range(3) for each in GUESTS}
    return host.plan(*(host.change(target, after) for target, after in wanted.items()))


def apply(host, journal, progress=lambda *_: None, **run):
    return executor.apply(the_plan(host), make_run(**run), host, journal, lambda: NOON, progress)


def entries_of(host):
    return [Entry("run-1", n, change, "intent", NOON) for n, change in enumerate(the_plan(host).changes, 1)]


def test_guests_are_changed_at_once_and_each_in_its_order(host, journal):
    shown = []
    assert apply(host, journal, lambda entry, total: shown.append((entry.seq, total))).state == "applied"
    assert 2 <= host.most <= host.guests_at_once
    for guest in GUESTS:
        pins = [target for owner, target in host.order if owner == emulator(guest).owner]
        assert pins == [str(emulator(guest)), *(str(vcpu(number, guest)) for number in range(3))]
    assert all(entry.state == "done" for entry in journal.entries("run-1"))
    assert sorted(seq for seq, _ in shown[1:]) == [entry.seq for entry in journal.entries("run-1")]
    back = make_run("back", kind="rollback", undoes="run-1")
    assert executor.rollback(back, host, journal, lambda: NOON, lambda *_: None).state == "rolled_back"
    assert host.kernel() == host.before


def test_each_intent_is_in_the_journal_before_the_first_change(host, journal):
    known = []
    host.before_write = lambda _: known.append(len(journal.entries("run-1")))
    apply(host, journal)
    assert set(known) == {len(the_plan(host).changes)}


def test_a_guest_that_fails_is_undone_alone(host, journal):
    def refuse(write):
        if write[0] in (str(vcpu(1, "g3")), str(vcpu(2, "g7"))) and write[1] == "2-7":
            raise ApplyFailed(write[0], "not granted")

    host.before_write = refuse
    run = apply(host, journal)
    assert (run.state, run.error[:8]) == ("applied_partly", "2 of 14 ")
    groups = {group_of(each.change.target) for each in journal.entries("run-1") if each.state != "done"}
    assert groups == {group_of(emulator("g3")), group_of(emulator("g7"))}


def test_an_error_of_the_whole_run_undoes_all_guests(host, journal):
    """A defect of pinner, not an error of a guest."""

    def fail(write):
        if write == (str(vcpu(1, "g3")), "2-7"):
            raise ZeroDivisionError

    host.before_write = fail
    with pytest.raises(ZeroDivisionError):
        apply(host, journal)
    assert journal.run("run-1").state == "undone"
    assert host.kernel() == host.before


def test_a_run_that_makes_all_changes_or_none_makes_them_in_order_and_undoes_guests_at_once(host, journal):
    last = str(vcpu(2, GUESTS[-1]))

    def refuse(write):
        if write == (last, "2-7"):
            assert host.most == 1
            raise ApplyFailed(last, "not granted")

    host.before_write = refuse
    assert apply(host, journal, all_or_nothing=True).state == "undone"
    assert host.most > 1
    assert host.kernel() == host.before


def test_guests_that_do_not_answer_are_asked_at_once_and_after_the_others(host):
    entries = [entry for entry in entries_of(host) if entry.change.target.kind == "emulator"]
    busy = {group_of(emulator(each)) for each in GUESTS[:8]}
    done, four = [], threading.Barrier(4)

    def work(entry):
        if group_of(entry.change.target) in busy:
            four.wait(60)  # it fails where fewer than four are asked at once
        done.append(group_of(entry.change.target))

    with_busy_last(entries, work, busy, 4)
    assert set(done[:4]).isdisjoint(busy)
    assert set(done[4:]) == busy


def test_two_guests_that_hang_do_not_delay_the_others(host):
    entries = [entry for entry in entries_of(host) if entry.change.target.kind == "emulator"]
    hanging, done, others = {emulator(guest).owner for guest in GUESTS[:2]}, [], threading.Event()

    def work(entry):
        if entry.change.target.owner in hanging:
            assert others.wait(60), "the others wait for the two"
        done.append(entry.change.target.owner)
        if len(done) == len(entries) - 2:
            others.set()

    side_by_side(entries, work, 4)
    assert set(done[-2:]) == hanging


def test_after_an_error_no_more_work_is_begun(host):
    begun = []

    def work(entry):
        begun.append(entry)
        time.sleep(0.01)
        raise Busy("g", "hangs", overdue=True)

    with pytest.raises(Busy):
        side_by_side(entries_of(host), work, 4)
    assert len(begun) <= 4


def test_processes_are_one_part_and_each_guest_is_one(host):
    parts = [{entry.change.target.owner for entry in part} for part in parts_of(entries_of(host))]
    assert parts == [{"400", "500"}, *({emulator(each).owner} for each in GUESTS)]


def test_a_call_of_a_dead_process_may_still_run_for_each_guest(host):
    entries = entries_of(host)
    for target, after in ((emulator("g0"), "1"), (vcpu(0, "g0"), "2-7"), (emulator("g1"), "1")):
        host.pin(target, next(e.change.after for e in entries if e.change.target == target), persist=False)
        assert str(host.masks(target)[0].cpus) == after
    around = _under_way(entries, host)
    by_owner = {}
    for entry in entries:
        if entry.seq in around:
            by_owner.setdefault(entry.change.target.owner, []).append(str(entry.change.target))
    assert by_owner.pop("400") == [str(daemon(400))]
    assert by_owner.pop(emulator("g0").owner) == [str(vcpu(0, "g0")), str(vcpu(1, "g0"))]
    assert by_owner.pop(emulator("g1").owner) == [str(emulator("g1")), str(vcpu(0, "g1"))]
    assert sorted(by_owner.values()) == sorted([str(emulator(each))] for each in GUESTS[2:])


@pytest.mark.parametrize("policy", ["back", "forward"])
def test_a_run_that_died_among_several_guests_is_recovered(host, journal, policy):
    plan = the_plan(host)
    journal.begin(make_run())
    entries = [Entry("run-1", n, change, "intent", NOON) for n, change in enumerate(plan.changes, 1)]
    journal.intend(*entries)
    for entry in entries[1::3]:
        if entry.change.target.kind != "process":
            host.pin(entry.change.target, entry.change.after, persist=False)
    journal.leave(make_run())
    run = recover(host, journal, policy, lambda: NOON)
    assert run.state == ("undone" if policy == "back" else "applied")
    assert (host.kernel() == host.before) == (policy == "back")


INTERRUPTED = """
import os, signal, sys, threading
from types import SimpleNamespace
from pinner.apply.side_by_side import side_by_side
from pinner.model.change import Target

def interrupt(*_):
    os.write(1, b"interrupted\\n")  # print cannot be interrupted by itself
    raise KeyboardInterrupt

def work(entry):
    begun.release()
    go_on.wait()
    ended.append(entry)

signal.signal(signal.SIGINT, interrupt)
begun, go_on, ended = threading.Semaphore(0), threading.Event(), []
targets = [Target("emulator", name, None, name) for name in ("g1", "g2")]

def steer():
    for _ in targets:
        begun.acquire()
    print("begun", flush=True)
    sys.stdin.readline()
    go_on.set()

threading.Thread(target=steer).start()
try:
    side_by_side([SimpleNamespace(change=SimpleNamespace(target=each)) for each in targets], work, 2)
except KeyboardInterrupt:
    print(len(ended), flush=True)
    go_on.set()
"""


def test_a_second_ctrl_c_does_not_leave_work_under_way():
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            assert process.stdout.readline() == "interrupted\n"
        assert process.communicate("go on\n")[0] == "2\n"


def inside(guest, queue):
    return GuestRps(guest, guest, "boot").target(GuestQueue("eth0", 2, queue, CpuSet()))


def test_a_guest_that_hangs_inside_is_asked_once_and_delays_no_other(host, journal):
    """Its agent answers the first question after 0.2 s with an error; it has eight queues."""
    queues = [inside(guest, queue) for guest in GUESTS[:2] for queue in range(8)]
    host.states |= dict.fromkeys(queues, GuestCpus(CpuSet()))
    answer, asked, late = host.state, [], []

    def state(target):
        asked.append(target)
        if target.owner.startswith(f"{GUESTS[0]} "):
            time.sleep(0.2)
            late.append(len(host.order))
            raise Busy(str(target), "no answer", overdue=False)
        return answer(target)

    host.state = state
    wanted = GuestCpus(CpuSet.parse("0-3"))
    settings = [StateChange(each, GuestCpus(CpuSet()), wanted, "so") for each in queues]
    plan = host.plan(*(host.change(vcpu(number, guest), "4-7") for guest in GUESTS for number in range(3)), *settings)
    run = executor.apply(plan, make_run("run-1"), host, journal, lambda: NOON, lambda entry, total: None)
    assert run.state == "applied_partly"
    assert [target for target in asked if target in queues[:8]] == queues[:1]
    assert late == [len(GUESTS) * 3]  # all vCPUs were pinned while it was silent
    assert [host.states[each] for each in queues[8:]] == [wanted] * 8
