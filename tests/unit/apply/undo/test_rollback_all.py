"""A rollback of all runs: every target gets what it had before pinner first touched it."""

from dataclasses import replace

import pytest
from support.fakes.in_memory_host import InMemoryHost, daemon, emulator, memory, vcpu
from support.values import MEMBER, NOON, cpus, isolated, make_run

from pinner.apply import executor, recover
from pinner.model.change import StateChange, Target
from pinner.model.errors import ApplyFailed, HostBusy, RunConflict, StoreUnavailable
from pinner.model.run.journal import Run
from pinner.store.database import tables
from pinner.store.database.engine import writing

SCOPE = Target("partition", "machine.slice/g1.scope", None, "g1.scope")


@pytest.fixture
def host():
    host = InMemoryHost()
    host.add(emulator(), "0-7", "0-3")
    host.add(vcpu(0), "0-7")
    host.add(daemon(300), "0-7", "2-5")
    host.states[SCOPE] = MEMBER
    host.reset = "0-7"
    return host


def apply(host: InMemoryHost, journal, name: str, *changes, **run: object) -> Run:
    ended = executor.apply(
        host.plan(*changes), make_run(name, **run), host, journal, lambda: NOON, lambda entry, total: None
    )
    assert ended.state == "applied"
    return ended


def rollback_all(host: InMemoryHost, journal, name: str = "all") -> Run:
    run = make_run(name, kind="rollback", plan="")
    return executor.rollback(run, host, journal, lambda: NOON, lambda entry, total: None)


def rollback(host: InMemoryHost, journal, undoes: str, name: str = "back") -> Run:
    run = make_run(name, kind="rollback", undoes=undoes)
    return executor.rollback(run, host, journal, lambda: NOON, lambda entry, total: None)


@pytest.mark.fault(59)
def test_every_thread_gets_the_mask_from_before_the_first_run(host, journal):
    before = host.kernel()
    apply(host, journal, "r1", host.change(daemon(300), "0"), host.change(vcpu(0), "4"))
    apply(host, journal, "r2", host.change(vcpu(0), "5"), host.change(emulator(), "1"))
    host.move(next(iter(host.threads[vcpu(0)])).tid, "2-3")  # another program
    apply(host, journal, "r3", host.change(vcpu(0), "6"))
    run = rollback_all(host, journal)
    assert (run.state, run.error) == ("rolled_back", "")
    assert host.kernel() == before
    assert [journal.run(name).state for name in ("r1", "r2", "r3", "all")] == ["rolled_back"] * 4
    assert [entry.state for name in ("r1", "r2", "r3", "all") for entry in journal.entries(name)] == ["undone"] * 8
    assert (journal.placed(), journal.moved_processes(), journal.allocated()) == ((), frozenset(), cpus(""))
    assert journal.changes_of("uuid-g1") == ()
    assert journal.in_effect() == ()


@pytest.mark.fault(59)
def test_it_can_be_repeated_and_then_has_nothing_to_do(host, journal):
    apply(host, journal, "r1", host.change(vcpu(0), "4"))
    rollback_all(host, journal)
    host.writes.clear()
    assert rollback_all(host, journal, "again").state == "rolled_back"
    assert (host.writes, journal.entries("again")) == ([], ())


@pytest.mark.fault(58)
def test_a_rollback_that_cannot_read_the_changes_keeps_no_other_run_from_its_rollback(host, journal):
    """A damaged row: the rollback is refused before it changes the host, and is not under way any more.

    A rollback of all runs is not refused: see test_damaged_records.
    """
    apply(host, journal, "r1", host.change(daemon(300), "0"))
    apply(host, journal, "r2", host.change(vcpu(0), "4"))
    before = host.kernel()
    with writing(journal._engine) as connection:
        connection.execute(tables.entries.update().filter_by(run="r1").values(change='{"kind":'))
    for name in ("first", "second"):
        with pytest.raises(StoreUnavailable, match="a stored value is damaged"):
            rollback(host, journal, "r1", name)
    assert host.kernel() == before
    assert journal.interrupted() is None
    assert rollback(host, journal, "r2").state == "rolled_back"
    assert host.kernel()[next(iter(host.threads[vcpu(0)])).tid] == "0-7"


def test_a_thread_that_another_program_moved_is_named_and_kept(host, journal):
    apply(host, journal, "r1", host.change(daemon(300), "0"))
    apply(host, journal, "r2", host.change(vcpu(0), "4"))
    (moved,) = (thread.tid for thread in host.threads[vcpu(0)])
    host.move(moved, "7")
    run = rollback_all(host, journal)
    assert run.state == "rolled_back_partly"
    assert f"thread {moved} was moved to 7 by another program or a later run, and stays there" in run.error
    assert host.kernel()[moved] == "7"
    assert [journal.run(name).state for name in ("r1", "r2")] == ["rolled_back", "rolled_back_partly"]
    host.move(moved, "4")
    assert rollback_all(host, journal, "again").state == "rolled_back"
    assert (host.kernel()[moved], journal.run("r2").state) == ("0-7", "rolled_back")


def test_a_target_that_has_ended_leaves_nothing_behind(host, journal):
    apply(host, journal, "r1", host.change(daemon(300), "0"), host.change(vcpu(0), "4"))
    del host.threads[daemon(300)]
    assert rollback_all(host, journal).state == "rolled_back"
    assert [entry.state for entry in journal.entries("all")] == ["gone", "undone"]
    assert [entry.state for entry in journal.entries("r1")] == ["gone", "undone"]
    assert journal.placed() == ()


@pytest.mark.fault(50)
def test_a_thread_that_was_born_on_a_mask_of_pinners_gets_the_usual_one(host, journal):
    apply(host, journal, "r1", host.change(daemon(300), "0"))
    born = host.bear(daemon(300), "0")
    apply(host, journal, "r2", host.change(daemon(300), "0-1"))
    assert rollback_all(host, journal).state == "rolled_back"
    assert host.kernel()[born] == "0-7"


@pytest.mark.fault(50)
def test_a_vcpu_that_was_plugged_in_on_the_emulators_mask_gets_the_guests_usual_one(host, journal):
    apply(host, journal, "r1", host.change(emulator(), "1"))
    host.add(vcpu(1), "1")
    host.threads[vcpu(1)] = [replace(thread, started=99) for thread in host.threads[vcpu(1)]]
    apply(host, journal, "r2", host.change(vcpu(1), "5"))
    assert rollback_all(host, journal).state == "rolled_back"
    assert [str(thread.cpus) for thread in host.threads[vcpu(1)]] == ["0-7"]


@pytest.mark.fault(50)
@pytest.mark.parametrize("in_one_run", [False, True])
def test_a_mask_that_a_vcpu_had_before_the_emulator_got_it_comes_back(host, journal, in_one_run):
    """The vCPU was plugged in after the first run, and its operator pinned it to 2-3."""
    apply(host, journal, "r1", host.change(emulator(), "1"))
    host.add(vcpu(1), "2-3")
    host.threads[vcpu(1)] = [replace(thread, started=20) for thread in host.threads[vcpu(1)]]
    host.clock = 30
    both = host.change(emulator(), "2-3"), host.change(vcpu(1), "5")
    if in_one_run:
        apply(host, journal, "r2", *both)
    else:
        apply(host, journal, "r2", both[0])
        apply(host, journal, "r3", both[1])
    assert rollback_all(host, journal).state == "rolled_back"
    assert [str(thread.cpus) for thread in host.threads[vcpu(1)]] == ["2-3"]


@pytest.mark.fault(50)
def test_a_child_that_was_placed_itself_gets_what_its_parent_had(host, journal):
    apply(host, journal, "r1", host.change(daemon(300), "0"))
    child = host.fork(daemon(300), 900)
    grandchild = host.fork(child, 901)
    apply(host, journal, "r2", host.change(child, "1"))
    late = host.fork(child, 902)
    assert rollback_all(host, journal).state == "rolled_back"
    assert {str(host.threads[each][0].cpus) for each in (child, grandchild, late)} == {"0-7"}


def test_states_and_memory_and_definitions_come_back(host, journal):
    before = host.kernel()
    host.definitions["uuid-g1"] = "<cputune/>"
    host.per_node[memory()] = {0: 1000, 1: 0}
    apply(host, journal, "r1", host.change(vcpu(0), "4"), persist=True)
    apply(host, journal, "r2", StateChange(SCOPE, MEMBER, isolated("4-5"), "so"))
    apply(host, journal, "r3", StateChange(SCOPE, isolated("4-5"), isolated("4-7"), "so"))
    assert rollback_all(host, journal).state == "rolled_back"
    assert (host.states[SCOPE], host.definitions["uuid-g1"]) == (MEMBER, "<cputune/>")
    assert host.kernel() == before


@pytest.mark.fault(59)
def test_a_definition_comes_back_after_a_run_gave_the_live_pin_of_an_earlier_run_again(host, journal):
    """The definition has the pin of the run in the middle, which is neither the first nor the last one."""
    host.definitions["uuid-g1"] = "<cputune/>"
    apply(host, journal, "r1", host.change(vcpu(0), "4"), persist=True)
    apply(host, journal, "r2", host.change(vcpu(0), "5"), persist=True)
    apply(host, journal, "r3", host.change(vcpu(0), "4"))
    run = rollback_all(host, journal)
    assert (run.state, run.error, host.definitions["uuid-g1"]) == ("rolled_back", "", "<cputune/>")


def test_definitions_that_no_run_wrote_stay(host, journal):
    host.definitions["uuid-g1"] = "[vcpu 0: 3]"
    apply(host, journal, "r1", host.change(vcpu(0), "4"))
    rollback_all(host, journal)
    assert host.definitions["uuid-g1"] == "[vcpu 0: 3]"


def test_it_is_refused_while_a_run_is_under_way(host, journal):
    apply(host, journal, "r1", host.change(vcpu(0), "4"))

    def refused(write):
        with pytest.raises(HostBusy, match="run r2 is working on host h1"):
            rollback_all(host, journal)

    host.before_write = refused
    apply(host, journal, "r2", host.change(emulator(), "1"))
    assert host.kernel()[200] == "4"


@pytest.mark.fault(59)
@pytest.mark.parametrize("writes", range(5))
def test_a_killed_rollback_of_all_runs_is_finished(host, journal, writes):
    before = host.kernel()
    apply(host, journal, "r1", host.change(daemon(300), "0"), host.change(vcpu(0), "4"))
    apply(host, journal, "r2", host.change(vcpu(0), "5"), host.change(emulator(), "1"))
    host.writes.clear()

    def dies(write):
        if len(host.writes) == writes:
            raise KeyboardInterrupt

    host.before_write = dies
    end, journal.end = journal.end, lambda *_: None
    with pytest.raises(KeyboardInterrupt):
        rollback_all(host, journal)
    journal.end = end
    host.before_write = lambda write: None
    run = recover.recover(host, journal, "forward", lambda: NOON)
    assert run is not None
    assert (run.id, run.state, host.kernel()) == ("all", "rolled_back", before)
    assert [journal.run(name).state for name in ("r1", "r2")] == ["rolled_back"] * 2


def test_a_rollback_that_died_before_it_had_entries_is_made_by_recovery(host, journal):
    before = host.kernel()
    apply(host, journal, "r1", host.change(vcpu(0), "4"))
    run = make_run("all", kind="rollback", plan="")
    journal.begin(run)
    journal.leave(run)
    ended = recover.recover(host, journal, "back", lambda: NOON)
    assert ended is not None
    assert (ended.state, host.kernel(), journal.run("r1").state) == ("rolled_back", before, "rolled_back")


def test_a_rollback_of_what_a_later_run_changed_again_names_that_run(host, journal):
    apply(host, journal, "r1", host.change(daemon(300), "0"), host.change(vcpu(0), "4"))
    apply(host, journal, "r2", host.change(vcpu(0), "5"))
    before = host.kernel()
    with pytest.raises(RunConflict, match="run r2 has changed guest g1 vcpu 0 again since; roll back r2 first"):
        rollback(host, journal, "r1")
    assert host.kernel() == before
    assert [entry.state for entry in journal.entries("r1")] == ["done", "done"]
    assert rollback(host, journal, "r2").state == "rolled_back"
    assert rollback(host, journal, "r1", "back-2").state == "rolled_back"


def test_a_later_run_that_is_rolled_back_in_part_is_not_asked_for_again(host, journal):
    apply(host, journal, "r1", host.change(vcpu(0), "4"))
    apply(host, journal, "r2", host.change(vcpu(0), "5"))
    host.move(200, "7")
    assert rollback(host, journal, "r2").state == "rolled_back_partly"
    with pytest.raises(RunConflict) as refused:
        rollback(host, journal, "r1", "back-2")
    assert refused.value.message.endswith(
        "run r2 has changed guest g1 vcpu 0 again since, and its rollback left that change in place; "
        "roll back all runs (--all)"
    )


def test_a_rollback_names_all_later_runs_that_must_be_undone_before_it(host, journal):
    apply(host, journal, "r1", host.change(vcpu(0), "4"))
    apply(host, journal, "r2", host.change(vcpu(0), "5"), host.change(daemon(300), "0"))
    apply(host, journal, "r3", host.change(daemon(300), "1"))
    with pytest.raises(RunConflict, match=r"vcpu 0 again since; roll back r3, then r2 first, or all runs \(--all\)$"):
        rollback(host, journal, "r1")
    for number, name in enumerate(("r3", "r2", "r1")):
        assert rollback(host, journal, name, f"back-{number}").state == "rolled_back"


def test_a_rollback_names_the_runs_that_changed_different_targets_too(host, journal):
    """Also the run between, whose target a third run has changed again."""
    apply(host, journal, "r1", host.change(vcpu(0), "4"), host.change(daemon(300), "0"))
    apply(host, journal, "r2", host.change(vcpu(0), "5"))
    apply(host, journal, "r3", host.change(daemon(300), "1"))
    apply(host, journal, "r4", host.change(vcpu(0), "6"))
    expected = r"vcpu 0 again since; roll back r4, then r3, then r2 first, or all runs \(--all\)$"
    with pytest.raises(RunConflict, match=expected):
        rollback(host, journal, "r1")
    for number, name in enumerate(("r4", "r3", "r2", "r1")):
        assert rollback(host, journal, name, f"back-{number}").state == "rolled_back"


def test_a_rollback_names_no_long_list_of_later_runs(host, journal):
    for number in range(8):
        apply(host, journal, f"r{number}", host.change(vcpu(0), str(number)))
    with pytest.raises(RunConflict) as refused:
        rollback(host, journal, "r0")
    assert refused.value.message.endswith(
        "again since, and more than 5 later runs must be rolled back first; roll back all runs (--all)"
    )


def test_runs_before_a_later_run_that_is_rolled_back_in_part_are_undone_with_all_runs(host, journal):
    before = host.kernel()
    apply(host, journal, "r1", host.change(vcpu(0), "4"))
    apply(host, journal, "r2", host.change(vcpu(0), "5"), host.change(daemon(300), "0"))
    apply(host, journal, "r3", host.change(daemon(300), "1"))
    host.move(300, "7")
    assert rollback(host, journal, "r3", "back-3").state == "rolled_back_partly"
    with pytest.raises(RunConflict) as refused:
        rollback(host, journal, "r1", "back-1")
    assert refused.value.message.endswith(
        "run r2 has changed guest g1 vcpu 0 again since, and the rollback of r3 left a later change in place; "
        "roll back all runs (--all)"
    )
    rollback_all(host, journal)
    assert host.kernel() == before | {300: host.kernel()[300]}


def test_a_partition_that_a_later_run_changed_again_is_refused_too(host, journal):
    apply(host, journal, "r1", StateChange(SCOPE, MEMBER, isolated("4-5"), "so"))
    apply(host, journal, "r2", StateChange(SCOPE, isolated("4-5"), isolated("4-7"), "so"))
    with pytest.raises(RunConflict, match=r"run r2 has changed partition g1\.scope again since"):
        rollback(host, journal, "r1")


def test_a_later_run_that_only_mended_the_placement_is_no_reason_to_refuse(host, journal):
    apply(host, journal, "r1", host.change(vcpu(0), "4"))
    host.move(200, "0-1")
    apply(host, journal, "r2", host.change(vcpu(0), "4"))
    assert rollback(host, journal, "r1").state == "rolled_back"
    assert host.kernel()[200] == "0-7"


def test_a_refused_thread_is_named_and_the_rest_is_restored(host, journal):
    apply(host, journal, "r1", host.change(daemon(300), "0"), host.change(vcpu(0), "4"))

    def refuse(write):
        if write[0] == "guest g1 vcpu 0":
            raise ApplyFailed(write[0], "CPUs 7 are not online")

    host.before_write = refuse
    run = rollback_all(host, journal)
    assert run.state == "rolled_back_partly"
    assert "CPUs 7 are not online" in run.error
    assert {host.kernel()[tid] for tid in (300, 301)} == {"0-7", "2-5"}
