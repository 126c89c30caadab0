"""Runs left open at chosen places. That real deaths leave nothing else is shown in
tests/functional/apply/test_kills.py."""

from dataclasses import replace

import pytest
from support.fakes.in_memory_host import InMemoryHost, Write, daemon, emulator, memory, vcpu
from support.values import MEMBER, NOON, cpus, isolated, make_run, root

from pinner.apply import executor
from pinner.apply.recover import RecoveryPolicy, recover
from pinner.apply.steps.affinity import is_begun
from pinner.model.change import Change, MemoryChange, StateChange, Target, ThreadMask
from pinner.model.errors import ApplyFailed
from pinner.model.plan.plan import Plan
from pinner.model.run.journal import Entry, Run
from pinner.model.states import PartitionState
from pinner.store.journal.journal import StoredJournal

WANTED = {emulator(): "1", vcpu(0): "2-7", vcpu(1): "2-7", daemon(400): "0"}
PLANNED = {100: "1", 101: "1", 200: "2-7", 300: "2-7", 400: "0", 401: "0"}
SCOPE = Target("partition", "g1.scope", None, "g1.scope")


@pytest.fixture
def host():
    host = InMemoryHost()
    host.add(emulator(), "0-3", "4-7")
    host.add(vcpu(0), "0-7")
    host.add(vcpu(1), "0-7")
    host.add(daemon(400), "0-7", "2-5")
    host.before = host.kernel()
    return host


def the_plan(host: InMemoryHost) -> Plan:
    return host.plan(*(host.change(target, after) for target, after in WANTED.items()))


def leave(journal: StoredJournal, plan: Plan, *changes: Change, **run: object) -> tuple[Entry, ...]:
    """Leave a run open, like a process that died after it had begun."""
    every = (*plan.changes, *changes)
    entries = tuple(Entry("run-1", n, change, "intent", NOON) for n, change in enumerate(every, 1))
    left = make_run(**run)
    journal.begin(left)
    journal.intend(*entries)
    journal.leave(left)
    return entries


def recovered(host: InMemoryHost, journal: StoredJournal, policy: RecoveryPolicy = "back") -> Run:
    run = recover(host, journal, policy, lambda: NOON)
    assert run is not None
    assert journal.run(run.id) == run
    assert recover(host, journal, policy, lambda: NOON) is None
    return run


def states(journal: StoredJournal) -> list[str]:
    return [entry.state for entry in journal.entries("run-1")]


def test_without_an_open_run_nothing_is_done(host, journal):
    assert recover(host, journal, "back", lambda: NOON) is None
    executor.apply(the_plan(host), make_run(), host, journal, lambda: NOON, lambda *_: None)
    host.writes.clear()
    assert recover(host, journal, "back", lambda: NOON) is None
    assert host.writes == []


@pytest.mark.parametrize("policy", ["back", "forward"])
@pytest.mark.parametrize("made", range(len(PLANNED) + 1))
def test_after_so_many_threads(host, journal, made, policy):
    leave(journal, the_plan(host))
    for tid in list(PLANNED)[:made]:
        host.move(tid, PLANNED[tid])
    run = recovered(host, journal, policy)
    if policy == "back":
        assert (run.state, host.kernel()) == ("undone", host.before)
        assert run.recovered == "interrupted; rolled back: 4 undone"
        assert states(journal) == ["undone"] * 4
    else:
        assert (run.state, host.kernel()) == ("applied", PLANNED)
        assert run.recovered == "interrupted; finished: 4 done"
        assert states(journal) == ["done"] * 4


@pytest.mark.parametrize("policy", ["back", "forward"])
def test_a_run_without_an_entry(host, journal, policy):
    journal.begin(make_run())
    journal.leave(make_run())
    run = recovered(host, journal, policy)
    assert (run.state, run.recovered, host.writes) == ("undone", "interrupted; rolled back: nothing to do", [])


@pytest.mark.parametrize("policy", ["back", "forward"])
@pytest.mark.parametrize("back", range(5))
def test_an_interrupted_rollback_is_finished(host, journal, back, policy):
    executor.apply(the_plan(host), make_run(), host, journal, lambda: NOON, lambda *_: None)
    left = make_run("run-2", kind="rollback", undoes="run-1")
    journal.begin(left)
    journal.leave(left)
    for tid in list(reversed(PLANNED))[:back]:
        host.move(tid, host.before[tid])
    run = recovered(host, journal, policy)
    assert (run.id, run.state, journal.run("run-1").state) == ("run-2", "rolled_back", "rolled_back")
    assert run.recovered == "interrupted; its rollback finished: 4 undone"
    assert host.kernel() == host.before


def test_an_interrupted_undo_of_a_pin_is_finished(host, journal):
    """libvirt gives an emulator's threads one mask, before each gets its own."""
    leave(journal, the_plan(host))
    for tid in (100, 101):
        host.move(tid, "0-7")
    assert recovered(host, journal).state == "undone"
    assert host.kernel() == host.before


def test_only_pins_that_may_be_under_way_are_made_again(host, journal):
    leave(journal, the_plan(host))
    for tid in (100, 101, 200):
        host.move(tid, PLANNED[tid])
    recovered(host, journal)
    pinned = [what for what, _ in host.writes if what.startswith("guest")]
    assert pinned == ["guest g1 vcpu 1", "guest g1 vcpu 0", "guest g1 emulator"]
    host.writes.clear()


@pytest.mark.parametrize("policy", ["back", "forward"])
def test_threads_that_another_program_moved_since_stay(host, journal, policy):
    leave(journal, the_plan(host), all_or_nothing=True)
    host.move(100, "1")
    host.move(200, "5")
    run = recovered(host, journal, policy)
    assert run.state == "failed"
    assert (
        "thread 200 was moved to 5 by another program or a later run, and stays there"
        in journal.entries("run-1")[1].error
    )
    assert host.kernel() == host.before | {200: "5"}


def test_targets_that_ended_are_named_and_no_failure(host, journal):
    leave(journal, the_plan(host))
    host.threads.pop(vcpu(0))
    host.threads.pop(daemon(400))
    run = recovered(host, journal)
    assert (run.state, run.recovered) == ("undone", "interrupted; rolled back: 2 gone, 2 undone")
    assert [entry.error for entry in journal.entries("run-1") if entry.state == "gone"] == [
        "guest g1 vcpu 0 is gone",
        "process busyd (400) is gone",
    ]


def test_an_apply_of_all_or_nothing_that_had_begun_to_undo_does_not_go_forward(host, journal):
    entries = leave(journal, the_plan(host), all_or_nothing=True)
    for tid in (100, 101, 200):
        host.move(tid, PLANNED[tid])
    journal.intend(replace(entries[3], state="failed", error="not granted"))
    assert recovered(host, journal, "forward").state == "undone"
    assert host.kernel() == host.before


@pytest.mark.parametrize("fails", range(1, 5))
def test_a_run_of_all_or_nothing_that_cannot_go_forward_goes_back(host, journal, fails):
    """The changes that had been made after the failed one, too."""
    entries = leave(journal, the_plan(host), all_or_nothing=True)
    for tid, mask in PLANNED.items():
        host.move(tid, mask)
    target = str(entries[fails - 1].change.target) if fails < 4 else "400"
    host.move(400 if fails == 4 else 100 * fails, host.before[400 if fails == 4 else 100 * fails])
    refused: list[Write] = []

    def refuse(write: Write) -> None:
        if write[0] == target and not refused:
            refused.append(write)
            raise ApplyFailed(target, "not granted")

    host.before_write = refuse
    run = recovered(host, journal, "forward")
    assert refused
    assert (run.state, run.recovered[:25]) == ("undone", "interrupted; rolled back:")
    assert host.kernel() == host.before


def test_without_a_disk_the_run_stays_open(host, journal, monkeypatch):
    leave(journal, the_plan(host))
    host.move(400, "0")
    with monkeypatch.context() as broken:
        broken.setattr(journal._runs, "end", _full)
        with pytest.raises(OSError, match="full"):
            recover(host, journal, "back", lambda: NOON)
    assert host.kernel() == host.before
    assert recovered(host, journal).state == "undone"


def _full(*_: object, **__: object) -> None:
    raise OSError("the disk is full")


@pytest.mark.parametrize("policy", ["back", "forward"])
def test_the_definition(host, journal, policy):
    host.definitions["uuid-g1"] = "[emulator 1]"
    entries = leave(journal, host.plan(host.change(emulator(), "1")), persist=True)
    journal.intend(replace(entries[0], definition="[emulator 3]"))
    host.move(100, "1")
    recovered(host, journal, policy)
    assert host.definitions["uuid-g1"] == ("[emulator 3]" if policy == "back" else "[emulator 1]")


@pytest.mark.parametrize(("now", "ours"), [(MEMBER, True), (PartitionState("member", cpus("4-7")), True),
                                           (isolated("4-7"), True), (root("4-7"), False)])  # fmt: skip
@pytest.mark.parametrize("policy", ["back", "forward"])
def test_a_partition_on_its_way(host, journal, now, ours, policy):
    change = StateChange(SCOPE, MEMBER, isolated("4-7"), "so")
    entries = leave(journal, host.plan(), change)
    host.states[SCOPE] = now
    if now != MEMBER:
        journal.intend(replace(entries[0], found=host.masks(SCOPE)))
        host.move(401, "0-7")
    run = recovered(host, journal, policy)
    if not ours:
        assert (run.state, host.states[SCOPE]) == ("failed", now)
    elif policy == "back":
        assert (run.state, host.states[SCOPE], host.kernel()) == ("undone", MEMBER, host.before)
    else:
        assert (run.state, host.states[SCOPE]) == ("applied", isolated("4-7"))


MIB = 1024


@pytest.mark.parametrize(
    ("now", "moved"),
    [({0: 500, 1: 100}, False), ({0: 499, 1: 101}, False), ({0: 200, 1: 400}, True), ({0: 0, 1: 600}, True)],
)
@pytest.mark.parametrize("policy", ["back", "forward"])
def test_memory_that_was_or_was_not_moved(host, journal, now, moved, policy):
    """A guest may allocate on one node and free on another meanwhile: that must not move all its memory."""
    change = MemoryChange(memory(), {0: 500 * MIB, 1: 100 * MIB}, 1, "", "so")
    leave(journal, host.plan(), change)
    host.per_node[memory()] = {node: mib * MIB for node, mib in now.items()}
    run = recovered(host, journal, policy)
    if policy == "forward":
        assert (run.state, host.per_node[memory()]) == ("applied", {0: 0, 1: 600 * MIB})
    elif moved:
        assert host.per_node[memory()] == {0: 600 * MIB, 1: 0}
    else:
        assert (run.state, host.per_node[memory()]) == ("undone", {node: mib * MIB for node, mib in now.items()})


def test_a_partition_that_was_not_begun_is_not_written(host, journal):
    """Even writing the present state may reset every mask, and no mask is in the journal."""
    host.states[SCOPE] = MEMBER
    made = StateChange(SCOPE, MEMBER, isolated("4-7"), "so")
    leave(journal, host.plan(made, *the_plan(host).changes))
    assert recovered(host, journal).state == "undone"
    assert [what for what, _ in host.writes if what == str(SCOPE)] == []
    assert host.kernel() == host.before


@pytest.mark.fault(55)
@pytest.mark.parametrize("policy", ["back", "forward"])
def test_a_run_of_an_earlier_boot_touches_no_thread_with_the_same_id(host, journal, policy):
    """Start times count from the boot: after it, other threads may have the ids and start times of the journal."""
    leave(journal, the_plan(host), boot="boot-1")
    before = host.kernel()
    host.writes.clear()
    run = recover(host, journal, policy, lambda: NOON, "boot-2")
    assert (run.state, host.kernel(), host.writes) == ("undone", before, [])
    assert states(journal) == ["gone"] * 4


@pytest.mark.fault(55)
@pytest.mark.parametrize("boot", ["boot-1", ""])
def test_a_run_of_the_present_boot_or_of_an_unknown_one_is_undone(host, journal, boot):
    leave(journal, the_plan(host), boot=boot)
    host.move(400, "0")
    run = recover(host, journal, "back", lambda: NOON, "boot-1")
    assert (run.state, host.kernel()) == ("undone", host.before)


@pytest.mark.fault(55)
def test_a_rollback_after_a_restart_of_the_host_restores_only_the_definitions(host, journal):
    """The guest was started from its definition, in new threads; the process 400 is another one."""
    host.definitions[vcpu(0).owner] = "<cputune/>"
    run = make_run(persist=True, boot="boot-1")
    executor.apply(the_plan(host), run, host, journal, lambda: NOON, lambda *_: None)
    for target in (emulator(), vcpu(0), vcpu(1)):
        host.threads[target] = [replace(thread, started=99) for thread in host.threads[target]]
    host.writes.clear()
    undo = make_run("run-2", kind="rollback", undoes="run-1", boot="boot-2")
    ended = executor.rollback(undo, host, journal, lambda: NOON, lambda *_: None)
    assert ended.state == "rolled_back_partly"
    assert "the host was restarted since" in ended.error
    assert states(journal) == ["undone"] * 3 + ["gone"]
    assert host.definitions[vcpu(0).owner] == "<cputune/>"
    assert [str(thread.cpus) for thread in host.threads[vcpu(0)]] == ["0-7"]
    assert host.kernel()[400] == "0", "another process, which has the id and start time of the placed one"


@pytest.mark.fault(55)
def test_the_changes_of_earlier_boots_are_gone_from_the_journal(host, journal):
    plan = the_plan(host)
    host.definitions[vcpu(0).owner] = "<cputune/>"
    for name, boot, persist in (("run-1", "boot-1", False), ("run-2", "boot-1", True), ("run-3", "boot-2", False)):
        run = make_run(name, boot=boot, persist=persist)
        executor.apply(plan, run, host, journal, lambda: NOON, lambda *_: None)
        assert journal.run(name).boot == boot
        for tid, mask in host.before.items():
            host.move(tid, mask)
    assert journal.end_earlier_boots("boot-2", NOON, lambda _: False) == 5
    found = {name: [entry.state for entry in journal.entries(name)] for name in ("run-1", "run-2", "run-3")}
    assert found == {"run-1": ["gone"] * 4, "run-2": ["done"] * 3 + ["gone"], "run-3": ["done"] * 4}
    assert journal.end_earlier_boots("boot-2", NOON, lambda _: False) == 0


def test_a_thread_that_was_born_with_the_mask_of_the_plan_is_no_sign_of_a_begun_change(host):
    change = host.change(daemon(400), "0")
    born = ThreadMask(999, 7, cpus("0"))
    assert not is_begun(change, (*change.before, born))
    assert is_begun(change, (replace(change.before[0], cpus=cpus("0")), *change.before[1:]))
