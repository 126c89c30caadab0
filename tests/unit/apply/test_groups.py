"""Independent guests and processes: a run places each one that can be placed, and leaves the others as they were."""

import threading
from collections.abc import Collection
from dataclasses import replace

import pytest
from support.fakes.in_memory_host import InMemoryHost, Write, daemon, emulator, memory, vcpu
from support.values import MEMBER, NOON, isolated, make_run

from pinner.apply import executor
from pinner.apply.recover import recover
from pinner.apply.transaction import Transaction
from pinner.model.change import StateChange, Target, group_of
from pinner.model.errors import ApplyFailed, Busy, PinnerError, RunConflict, StoreUnavailable
from pinner.model.plan.plan import GuestMemory, Plan
from pinner.model.run.journal import Entry, Run

GUESTS = ("g1", "g2", "g3")
SCOPE = Target("partition", "machine.slice/g1.scope", None, "g1.scope")


@pytest.fixture
def host():
    host = InMemoryHost()
    host.add(daemon(500), "0-7", "2-5")
    for guest in GUESTS:
        host.add(emulator(guest), "0-7", "0-3")
    for guest in GUESTS:
        host.add(vcpu(0, guest), "0-7")
    host.before = host.kernel()
    return host


def the_plan(host: InMemoryHost) -> Plan:
    """The order of the planner: processes, emulators, vCPUs."""
    wanted = {daemon(500): "0"} | {emulator(each): "1" for each in GUESTS} | {vcpu(0, each): "2-7" for each in GUESTS}
    return host.plan(*(host.change(target, after) for target, after in wanted.items()))


def apply(plan, host, journal, **run) -> Run:
    return executor.apply(plan, make_run(**run), host, journal, lambda: NOON, lambda *_: None)


def rollback(host, journal) -> Run:
    undo = make_run("back", kind="rollback", undoes="run-1")
    return executor.rollback(undo, host, journal, lambda: NOON, lambda *_: None)


def refuse(host: InMemoryHost, *targets: str, error: PinnerError | None = None) -> None:
    """Each write to these targets fails."""

    def before_write(write: Write) -> None:
        if write[0] in targets:
            raise error or ApplyFailed(write[0], "not granted")

    host.before_write = before_write


def placed(host: InMemoryHost, plan: Plan) -> set[str]:
    """The groups whose threads all have their planned masks. Fails where another group is not as it was."""
    found = {}
    for change in plan.changes:
        now = {thread.tid: str(thread.cpus) for thread in host.threads[change.target]}
        planned = {thread.tid: str(change.after) for thread in change.before}
        assert now in (planned, {tid: host.before[tid] for tid in planned}), change.target
        found.setdefault(group_of(change.target)[1], set()).add(now == planned)
    assert all(len(made) == 1 for made in found.values()), found
    return {owner for owner, made in found.items() if made == {True}}


def states(journal, owner: str) -> list[str]:
    return [entry.state for entry in journal.entries("run-1") if entry.change.target.owner == owner]


ERRORS = [ApplyFailed("guest g2 vcpu 0", "no"), Busy("guest g2 vcpu 0", "occupied", overdue=True)]


@pytest.mark.fault(47)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_guest_that_fails_leaves_the_others_placed(host, journal, error):
    plan = the_plan(host)

    def before_write(write: Write) -> None:
        if write == ("guest g2 vcpu 0", "2-7"):
            raise error

    host.before_write = before_write
    run = apply(plan, host, journal)
    assert run.state == "applied_partly"
    assert run.error == f"1 of 4 guests and processes are not placed: {error}"
    assert placed(host, plan) == {"500", "uuid-g1", "uuid-g3"}
    assert states(journal, "uuid-g2") == ["undone", "failed"]
    assert states(journal, "uuid-g3") == ["done", "done"]
    host.before_write = lambda write: None
    assert rollback(host, journal).state == "rolled_back"
    assert journal.run("run-1").state == "rolled_back"
    assert host.kernel() == host.before


@pytest.mark.fault(48)
def test_a_process_that_fails_leaves_the_guests_placed(host, journal):
    plan = the_plan(host)
    refuse(host, "100", "101")
    run = apply(plan, host, journal)
    assert (run.state, placed(host, plan)) == ("applied_partly", {"uuid-g1", "uuid-g2", "uuid-g3"})
    assert run.error == "1 of 4 guests and processes are not placed: process busyd (500): 100: not granted"


@pytest.mark.fault(48)
def test_a_process_that_resets_its_affinity_is_given_up_with_the_true_cause(host, journal):
    plan = the_plan(host)
    (resetting, _) = (thread.tid for thread in host.threads[daemon(500)])
    host.before_read = lambda target: host.move(resetting, "0-7") if target == daemon(500) else None
    run = apply(plan, host, journal)
    assert (run.state, placed(host, plan)) == ("applied_partly", {"uuid-g1", "uuid-g2", "uuid-g3"})
    assert f"thread {resetting} is on 0-7 again each time that pinner moves it to 0" in run.error
    assert "sets its affinity" in run.error


@pytest.mark.fault(47)
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_after_a_failure_no_other_change_of_the_guest_is_tried(host, journal, error):
    plan = the_plan(host)
    refuse(host, "guest g2 emulator", error=error)
    assert apply(plan, host, journal).state == "applied_partly"
    assert ("guest g2 vcpu 0", "2-7") not in host.writes
    (unmade,) = (entry for entry in journal.entries("run-1") if entry.change.target == vcpu(0, "g2"))
    assert (unmade.state, unmade.error) == ("undone", "not made: a change before it failed")


@pytest.mark.fault(47)
def test_the_undo_of_a_busy_guest_comes_last(host, journal):
    plan = the_plan(host)
    refuse(host, "guest g2 vcpu 0", error=Busy("guest g2 vcpu 0", "occupied", overdue=True))
    run = apply(plan, host, journal)
    assert run.state == "applied_partly"
    assert states(journal, "uuid-g2") == ["undone", "stuck"]
    assert "but its undo: guest g2 vcpu 0: occupied" in journal.entries("run-1")[4].error
    order = [what for what, _ in host.writes if what.startswith("guest")]
    assert order.index("guest g3 vcpu 0") < len(order) - 1
    assert order[-1] == "guest g2 emulator", "the undo"
    host.before_write = lambda write: None
    assert rollback(host, journal).state == "rolled_back"
    assert host.kernel() == host.before


@pytest.mark.fault(47)
def test_a_rollback_undoes_a_guest_that_does_not_answer_last(host, journal):
    assert apply(the_plan(host), host, journal).state == "applied"
    host.occupied = {"uuid-g3"}
    host.writes.clear()
    assert rollback(host, journal).state == "rolled_back"
    order = [what for what, _ in host.writes if what.startswith("guest")]
    assert [("g3" in what) for what in order] == [False] * 4 + [True] * 2
    assert host.kernel() == host.before


@pytest.mark.fault(47)
def test_a_guest_that_is_known_to_be_busy_is_not_touched(host, journal):
    plan = the_plan(host)
    host.occupied = {"uuid-g2"}
    run = apply(plan, host, journal)
    assert (run.state, placed(host, plan)) == ("applied_partly", {"500", "uuid-g1", "uuid-g3"})
    assert not [what for what, _ in host.writes if "g2" in what]
    assert states(journal, "uuid-g2") == ["failed", "undone"]


def test_with_all_or_nothing_one_failure_undoes_all(host, journal):
    plan = the_plan(host)
    host.occupied = {"uuid-g2"}
    run = apply(plan, host, journal, all_or_nothing=True)
    assert (run.state, run.error, placed(host, plan)) == (
        "undone",
        "guest g2 emulator: occupied; try again later",
        set(),
    )
    assert host.kernel() == host.before


def test_where_no_group_is_placed_the_run_is_undone(host, journal):
    plan = the_plan(host)
    host.occupied = {"uuid-g1", "uuid-g2", "uuid-g3"}
    refuse(host, "100", "101")
    run = apply(plan, host, journal)
    assert (run.state, host.kernel()) == ("undone", host.before)
    assert run.error.startswith("4 of 4 guests and processes are not placed: process busyd (500): 100: not granted; ")
    with pytest.raises(RunConflict, match="run run-1 is undone"):
        rollback(host, journal)


def test_a_change_of_the_host_that_fails_undoes_all(host, journal):
    host.states[SCOPE] = MEMBER
    plan = replace(the_plan(host), changes=(*the_plan(host).changes, StateChange(SCOPE, MEMBER, isolated("4-7"), "so")))
    refuse(host, str(SCOPE))
    host.states[SCOPE] = MEMBER
    assert apply(plan, host, journal).state in ("undone", "failed")
    assert host.kernel() == host.before


def test_a_change_that_fails_undoes_a_run_that_changes_the_host_itself(host, journal):
    """The partitions of a host hold for all its guests."""
    host.states[SCOPE] = MEMBER
    plan = replace(the_plan(host), changes=(*the_plan(host).changes, StateChange(SCOPE, MEMBER, isolated("4-7"), "so")))
    host.occupied = {"uuid-g2"}
    assert apply(plan, host, journal).state == "undone"
    assert host.kernel() == host.before


def test_memory_belongs_to_its_guest(host, journal):
    for guest in GUESTS[:2]:
        host.per_node[memory(guest)] = {0: 500, 1: 0}
    plan = replace(the_plan(host), memory=tuple(GuestMemory(memory(guest), {0: 500}, 0, 0, 1) for guest in GUESTS[:2]))

    def before_write(write: Write) -> None:
        if write == ("guest g1 memory", "[0] -> 1"):
            raise ApplyFailed("guest g1 memory", "no pages are free")

    host.before_write = before_write
    run = apply(plan, host, journal, migrate_memory=True)
    assert (run.state, placed(host, plan)) == ("applied_partly", {"500", "uuid-g2", "uuid-g3"})
    assert [host.per_node[memory(guest)] for guest in GUESTS[:2]] == [{0: 500, 1: 0}, {0: 0, 1: 500}]


@pytest.mark.parametrize("leaves", [True, False])
def test_a_guest_does_not_get_the_cpu_that_another_one_could_not_leave(journal, leaves):
    """Otherwise two guests would share a CPU of their own."""
    host = InMemoryHost()
    for number, guest in enumerate(GUESTS):
        host.add(vcpu(0, guest), str(number))
    host.before = host.kernel()
    plan = host.plan(*(host.change(vcpu(0, guest), str((number + 1) % 4)) for number, guest in enumerate(GUESTS)))
    if not leaves:
        host.occupied = {"uuid-g3"}
    run = apply(plan, host, journal)
    if leaves:
        assert run.state == "applied"
        return
    assert (run.state, host.kernel()) == ("undone", host.before)
    assert "guest g2 vcpu 0: CPU 2 is still in use by guest g3 vcpu 0, which could not be moved" in run.error
    assert "guest g1 vcpu 0: CPU 1 is still in use by guest g2 vcpu 0" in run.error


def test_a_journal_that_cannot_be_written_undoes_all(host, journal, monkeypatch):
    plan = the_plan(host)
    host.occupied = {"uuid-g2"}
    intend = journal.intend

    def full(*entries: Entry, **more: Collection[Entry]) -> None:
        if not entries:
            raise StoreUnavailable("journal", "the disk is full")
        intend(*entries, **more)

    monkeypatch.setattr(journal, "intend", full)
    assert apply(plan, host, journal).state == "undone"
    assert host.kernel() == host.before


def test_a_note_that_cannot_be_written_once_undoes_all_and_no_group_alone(host, journal, monkeypatch):
    plan = the_plan(host)
    note, refused = journal.note, []

    def full_once(entry: Entry, **more: bool) -> None:
        if entry.state == "done" and not refused:
            refused.append(entry)
            raise StoreUnavailable("journal", "the disk is full")
        note(entry, **more)

    monkeypatch.setattr(journal, "note", full_once)
    run = apply(plan, host, journal)
    assert (run.state, "the disk is full" in run.error) == ("undone", True)
    assert host.kernel() == host.before


def no_end(*_: object) -> None:
    raise StoreUnavailable("journal", "the disk is full")


def test_without_a_stored_end_a_mistake_in_one_undo_leaves_the_others_alone(host, journal, monkeypatch):
    plan = the_plan(host)

    def before_write(write: Write) -> None:
        if write == ("guest g2 vcpu 0", "0-7"):
            raise ValueError("a mistake in this program")

    host.before_write = before_write
    monkeypatch.setattr(journal, "end", no_end)
    with pytest.raises(StoreUnavailable, match="the disk is full"):
        apply(plan, host, journal)
    left = {tid for tid, mask in host.kernel().items() if mask != host.before[tid]}
    assert left == {thread.tid for thread in host.threads[vcpu(0, "g2")]}


def test_without_a_stored_end_a_guest_that_does_not_answer_delays_no_other_one(host, journal, monkeypatch):
    plan = the_plan(host)
    host.guests_at_once = 3
    others = threading.Barrier(3)

    def before_write(write: Write) -> None:
        if write[1] == "0-7" and "vcpu" in write[0]:
            others.wait(60)

    host.before_write = before_write
    monkeypatch.setattr(journal, "end", no_end)
    with pytest.raises(StoreUnavailable):
        apply(plan, host, journal)
    assert host.kernel() == host.before


class Died(BaseException):
    """The process dies."""


@pytest.mark.parametrize("policy", ["back", "forward"])
@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.parametrize("writes", range(20))
def test_a_run_with_a_failure_is_recovered_wherever_its_process_dies(host, journal, policy, busy, writes, monkeypatch):
    """The failed guest is as it was, whether recovery finishes the run or undoes it."""
    plan = the_plan(host)
    refused: list[Write] = []

    def before_write(write: Write) -> None:
        if len(host.writes) >= writes:
            raise Died
        if write == ("guest g2 vcpu 0", "2-7") and not refused:
            refused.append(write)
            raise Busy(write[0], "occupied", overdue=True) if busy else ApplyFailed(write[0], "no")

    host.before_write = before_write
    executed: list[Run] = []
    with monkeypatch.context() as dying:
        # A dead process undoes nothing and notes nothing.
        dying.setattr("pinner.apply.transaction.Transaction._undo_groups", _unless_dead(host, before_write))
        try:
            executed.append(apply(plan, host, journal))
        except Died:
            journal._notes.clear()
            journal._noted.clear()
    host.before_write = lambda write: None
    if executed:
        assert (executed[0].state, placed(host, plan)) == ("applied_partly", {"500", "uuid-g1", "uuid-g3"})
        return
    run = recover(host, journal, policy, lambda: NOON)
    if policy == "back":
        assert (run.state, host.kernel()) == ("undone", host.before)
        return
    assert run.state in ("applied", "applied_partly")
    others = {"500", "uuid-g1", "uuid-g3"}
    assert placed(host, plan) == (others if run.state == "applied_partly" else {*others, "uuid-g2"})
    assert rollback(host, journal).state == "rolled_back"
    assert host.kernel() == host.before


def _unless_dead(host, before_write):
    original = Transaction._undo_groups

    def undo_groups(self, groups):
        if len(groups) == len(self._groups):
            raise Died  # the abort of the whole run: it never comes, the process is dead
        original(self, groups)

    return undo_groups


@pytest.mark.fault(47)
def test_beside_a_change_of_the_host_every_guest_that_does_not_answer_is_named_at_once(host, journal):
    """Each guest would otherwise cost a run of its own, and its backoff."""
    host.states[SCOPE] = MEMBER
    plan = replace(the_plan(host), changes=(*the_plan(host).changes, StateChange(SCOPE, MEMBER, isolated("4-7"), "so")))
    host.occupied = {"uuid-g1", "uuid-g3"}
    run = apply(plan, host, journal)
    assert (run.state, host.kernel(), host.writes) == ("undone", host.before, [])
    assert run.error.startswith("2 of 5 guests and processes are not placed: guest g1 emulator: occupied")
    assert states(journal, "uuid-g1") == states(journal, "uuid-g3") == ["failed", "undone"]
    assert states(journal, "uuid-g2") == ["undone", "undone"]
    failed = [entry for entry in journal.entries("run-1") if entry.state == "failed"]
    assert [str(entry.change.target) for entry in failed] == ["guest g1 emulator", "guest g3 emulator"]


@pytest.mark.fault(47)
def test_four_guests_that_hang_beside_a_partition_are_named_at_once_and_the_next_run_does_without_them(host, journal):
    """As many as are changed at the same time: the first run changes nothing, and no guest delays another one."""
    hung = tuple(f"h{number}" for number in range(4))
    for guest in hung:
        host.add(vcpu(0, guest), "0-7")
    host.before, host.states[SCOPE] = host.kernel(), MEMBER
    partition = StateChange(SCOPE, MEMBER, isolated("4-7"), "so")
    changes = [host.change(vcpu(0, guest), "4-7") for guest in (*hung, *GUESTS)]
    host.occupied = {f"uuid-{guest}" for guest in hung}
    run = apply(replace(host.plan(*changes), changes=(*changes, partition)), host, journal)
    assert (run.state, host.kernel(), host.states[SCOPE]) == ("undone", host.before, MEMBER)
    assert [guest for guest in hung if f"guest {guest} vcpu 0: occupied" in run.error] == list(hung)
    assert host.writes == []
    others = [each for each in changes if each.target.owner not in host.occupied]
    again = apply(replace(host.plan(*others), changes=(*others, partition)), host, journal, run="run-2")
    assert (again.state, host.states[SCOPE]) == ("applied", isolated("4-7"))
