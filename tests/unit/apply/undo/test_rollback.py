from dataclasses import replace

import pytest
from support.fakes.in_memory_host import InMemoryHost, Write, daemon, emulator, vcpu
from support.values import NOON, cpus, make_run

from pinner.apply import executor
from pinner.apply.recover import recover
from pinner.model.change import Target, ThreadMask
from pinner.model.errors import ApplyFailed, Busy, Gone, NotFound, RunConflict, StoreUnavailable
from pinner.model.run.journal import IN_PART, Run
from pinner.store.journal.journal import StoredJournal


@pytest.fixture
def host(journal):
    """A host with an applied run-1; ``before`` are the masks before that run."""
    host = InMemoryHost()
    host.add(emulator(), "0-7", "0-7", "0-3")
    host.add(vcpu(0), "0-7")
    host.add(daemon(300), "0-7", "2-5", "4")
    host.definitions["uuid-g1"] = "<cputune/>"
    host.before = host.kernel()
    wanted = {emulator(): "1", vcpu(0): "2-7", daemon(300): "0"}
    plan = host.plan(*(host.change(target, after) for target, after in wanted.items()))
    executor.apply(plan, make_run(), host, journal, lambda: NOON, lambda *_: None)
    host.writes.clear()
    return host


def rollback(host: InMemoryHost, journal: StoredJournal, name: str = "run-2", undoes: str = "run-1") -> Run:
    run = make_run(name, kind="rollback", undoes=undoes)
    return executor.rollback(run, host, journal, lambda: NOON, lambda *_: None)


def states(journal: StoredJournal) -> list[str]:
    return [entry.state for entry in journal.entries("run-1")]


def test_every_thread_gets_its_own_mask_back(host, journal):
    seen: list[tuple[int, str, int]] = []
    run = executor.rollback(
        make_run("run-2", kind="rollback", undoes="run-1"),
        host,
        journal,
        lambda: NOON,
        lambda entry, total: seen.append((entry.seq, entry.state, total)),
    )
    assert host.kernel() == host.before
    assert run.state == journal.run("run-1").state == "rolled_back"
    assert journal.run("run-2") == run
    assert states(journal) == ["undone"] * 3
    assert seen == [(3, "done", 3), (3, "undone", 3), (2, "undone", 3), (1, "undone", 3)]
    assert [what for what, _ in host.writes] == ["300", "301", "302", "guest g1 vcpu 0", "guest g1 emulator", "102"]


@pytest.mark.fault(1)
def test_a_cpu_that_went_offline_is_named_and_the_rest_is_restored(host, journal):
    """The rest too, when the CPU is online again and the rollback is repeated."""

    def refused(write: Write) -> None:
        if "7" in write[1] or write[1] == "0-7":
            raise ApplyFailed(write[0], "CPUs 7 are not online (online: 0-6)")

    host.before_write = refused
    run = rollback(host, journal)
    assert (run.state, states(journal)) == ("rolled_back_partly", ["stuck"] * 3)
    assert run.error.startswith("3 of 3 changes could not be undone: ")
    assert "guest g1 vcpu 0: CPUs 7 are not online (online: 0-6)" in run.error
    assert {tid: mask for tid, mask in host.kernel().items() if tid in (301, 302)} == {301: "2-5", 302: "4"}
    host.before_write = lambda write: None
    assert rollback(host, journal, "run-3").state == "rolled_back"
    assert host.kernel() == host.before


@pytest.mark.fault(1)
@pytest.mark.parametrize("undoes", ["run-1", ""])
def test_threads_get_the_online_cpus_of_their_masks_and_the_rest_once_it_is_online(host, journal, undoes):
    """Whether the first rollback is repeated, or all runs are rolled back."""

    def confined(write: Write) -> None:
        if host.offline and cpus(host.offline) & cpus(write[1]):
            raise ApplyFailed(write[0], f"the kernel grants CPUs {cpus(write[1]) - cpus(host.offline)}")

    host.before_write = confined
    host.offline = "7"
    for name in ("run-2", "run-3"):
        run = rollback(host, journal, name)
        assert (run.state, states(journal)) == ("rolled_back_partly", ["stuck"] * 3)
        assert host.kernel() == {tid: mask.replace("-7", "-6") for tid, mask in host.before.items()}
        assert f"thread 200 had CPUs 0-7: CPUs 7 {IN_PART}" in run.error
        assert "another program" not in run.error
    host.offline = ""
    assert rollback(host, journal, "run-4", undoes).state == "rolled_back"
    assert host.kernel() == host.before
    assert states(journal) == ["undone"] * 3


@pytest.mark.fault(1)
def test_the_kernel_that_takes_a_cpu_offline_is_not_another_program(host, journal):
    host.offline = "7"
    (pinned,) = (thread.tid for thread in host.threads[vcpu(0)])
    host.move(pinned, "2-6")
    host.move(101, "7")
    run = rollback(host, journal)
    assert "1 of 3 changes could not be undone: thread 101 was moved to 7 by another program" in run.error
    assert states(journal) == ["stuck", "undone", "undone"]
    assert host.kernel()[pinned] == host.before[pinned]


def test_targets_that_ended_cannot_be_restored_and_are_named(host, journal):
    """A single thread of a process may end; the process is still restored."""
    host.threads.pop(vcpu(0))
    del host.threads[daemon(300)][1]
    run = rollback(host, journal)
    assert (run.state, run.error) == (
        "rolled_back_partly",
        "1 of 3 changes could not be undone: guest g1 vcpu 0 is gone",
    )
    assert states(journal) == ["undone", "gone", "undone"]
    assert host.kernel() == {tid: mask for tid, mask in host.before.items() if tid not in (200, 301)}


def test_the_error_of_a_rollback_counts_the_changes_of_its_run(host, journal):
    """One change was gone before: "1 undone, 2 gone" of three changes."""
    host.threads.pop(vcpu(0))
    journal.note(replace(journal.entries("run-1")[0], state="gone"))
    run = rollback(host, journal)
    assert states(journal) == ["gone", "gone", "undone"]
    assert run.error == "1 of 3 changes could not be undone, and 1 needed no undo: guest g1 vcpu 0 is gone"


def test_threads_born_since_get_the_mask_that_their_process_had(host, journal):
    ours = host.bear(daemon(300), "0")
    placed = host.bear(daemon(300), "6")
    worker = host.bear(emulator(), "1")
    assert rollback(host, journal).state == "rolled_back"
    assert host.kernel() == host.before | {ours: "0-7", placed: "6", worker: "0-7"}


def test_threads_born_during_the_rollback_too(host, journal):
    born: list[int] = []

    def before_write(write: Write) -> None:
        if write[0] == "301":
            born.append(host.bear(daemon(300), "0"))

    host.before_write = before_write
    assert rollback(host, journal).state == "rolled_back"
    assert host.kernel() == host.before | {born[0]: "0-7"}


@pytest.mark.fault(27)
def test_threads_that_another_program_moved_stay_and_are_named(host, journal):
    host.move(301, "6")
    host.move(101, "7")
    run = rollback(host, journal)
    assert run.state == journal.run("run-1").state == "rolled_back_partly"
    assert run.error == (
        "2 of 3 changes could not be undone: "
        "thread 301 was moved to 6 by another program or a later run, and stays there; "
        "thread 101 was moved to 7 by another program or a later run, and stays there"
    )
    assert host.kernel() == host.before | {301: "6", 101: "7"}
    emulator_entry, _, daemon_entry = journal.entries("run-1")
    assert emulator_entry.error == "thread 101 was moved to 7 by another program or a later run, and stays there"
    assert daemon_entry.error == "thread 301 was moved to 6 by another program or a later run, and stays there"


@pytest.mark.fault(27)
def test_a_thread_that_another_program_moves_during_the_rollback_stays_and_is_named(host, journal):
    """Between the reading of all threads and the setting of the last one is a second under load."""
    host.before_write = lambda write: host.move(301, "6") if write[0] == "300" else None
    run = rollback(host, journal)
    moved = "thread 301 was moved to 6 by another program or a later run, and stays there"
    assert (run.state, run.error) == ("rolled_back_partly", f"1 of 3 changes could not be undone: {moved}")
    assert host.kernel() == host.before | {301: "6"}


@pytest.mark.fault(27)
@pytest.mark.parametrize(("tid", "other"), [(300, "302"), (301, "300"), (100, "102")])
def test_a_thread_that_another_program_moves_after_it_was_restored_stays_and_is_named(host, journal, tid, other):
    """An operator had moved 301 before, and moves it again."""
    host.move(301, "5")
    host.before_write = lambda write: host.move(tid, "6") if write[0] == other else None
    run = rollback(host, journal)
    assert (run.state, host.kernel()) == ("rolled_back_partly", host.before | {301: "5"} | {tid: "6"})
    assert f"thread {tid} was moved to 6 by another program or a later run, and stays there" in run.error


def test_a_new_thread_that_another_program_moves_twice_keeps_its_last_mask(host, journal):
    tid = host.bear(daemon(300), "6")
    host.before_write = lambda write: host.move(tid, "5") if write[0] == "300" else None
    assert rollback(host, journal).state == "rolled_back"
    assert host.kernel() == host.before | {tid: "5"}


def test_a_partial_rollback_can_be_finished(host, journal):
    host.before_write = lambda write: _refuse() if write[0] == "guest g1 vcpu 0" else None
    assert rollback(host, journal).state == "rolled_back_partly"
    assert states(journal) == ["undone", "stuck", "undone"]
    host.before_write = lambda write: None
    assert rollback(host, journal, "run-3").state == "rolled_back"
    assert states(journal) == ["undone"] * 3
    assert host.kernel() == host.before


def _refuse() -> None:
    raise Busy("guest g1 vcpu 0", "another job has the guest locked", overdue=False)


def test_a_guest_that_was_started_anew_is_not_restored(host, journal):
    host.threads[vcpu(0)] = [ThreadMask(200, 8, cpus("5"))]
    run = rollback(host, journal)
    assert run.state == "rolled_back_partly"
    assert "guest g1 vcpu 0 of that run (it was restarted since) is gone" in run.error
    assert host.kernel()[200] == "5"


def test_the_definition_comes_back(journal):
    host = InMemoryHost()
    host.add(vcpu(0), "0-7")
    host.definitions["uuid-g1"] = "<cputune/>"
    plan = host.plan(host.change(vcpu(0), "1"))
    executor.apply(plan, make_run(persist=True), host, journal, lambda: NOON, lambda *_: None)
    assert host.definitions["uuid-g1"] != "<cputune/>"
    assert rollback(host, journal).state == "rolled_back"
    assert host.definitions["uuid-g1"] == "<cputune/>"


@pytest.mark.parametrize("ended", ["before", "meanwhile"])
def test_the_definition_of_a_guest_that_was_shut_down_comes_back(journal, ended):
    host = InMemoryHost()
    host.add(vcpu(0), "0-7")
    host.definitions["uuid-g1"] = "<cputune/>"
    plan = host.plan(host.change(vcpu(0), "1"))
    if ended == "meanwhile":
        host.before_read = lambda target: host.threads.pop(target, None) if host.writes else None
    executor.apply(plan, make_run(persist=True), host, journal, lambda: NOON, lambda *_: None)
    host.threads.pop(vcpu(0), None)
    assert host.definitions["uuid-g1"] != "<cputune/>"
    assert rollback(host, journal).state == ("rolled_back_partly" if ended == "before" else "rolled_back")
    assert host.definitions["uuid-g1"] == "<cputune/>"


def test_a_definition_that_cannot_be_restored_is_named(journal):
    host = InMemoryHost()
    host.add(vcpu(0), "0-7")
    host.definitions["uuid-g1"] = "<cputune/>"
    executor.apply(
        host.plan(host.change(vcpu(0), "1")), make_run(persist=True), host, journal, lambda: NOON, lambda *_: None
    )
    host.before_write = lambda write: _refuse() if write[0].startswith("definition") else None
    assert rollback(host, journal).state == "rolled_back_partly"
    assert "the persistent definition:" in journal.entries("run-1")[0].error
    host.before_write = lambda write: _gone() if write[0].startswith("definition") else None
    assert rollback(host, journal, "run-3").state == "rolled_back_partly"


def _gone() -> None:
    raise Gone("guest g1")


def test_what_cannot_be_rolled_back(host, journal):
    with pytest.raises(NotFound):
        rollback(host, journal, undoes="nothing")
    rollback(host, journal)
    for name in ("run-1", "run-2"):
        with pytest.raises(RunConflict):
            rollback(host, journal, "run-3", undoes=name)
    with pytest.raises(NotFound):
        journal.run("run-3")
    assert host.kernel() == host.before


def test_a_running_run_cannot_be_rolled_back(host, journal, tmp_path):
    other = StoredJournal(tmp_path)
    other.begin(make_run("run-9"))
    with pytest.raises(RunConflict, match="run-9 is running"):
        rollback(host, journal, undoes="run-9")
    other.end(make_run("run-9", state="undone"))
    other.close()
    with pytest.raises(RunConflict, match="run-9 is undone"):
        rollback(host, journal, undoes="run-9")


def exhausted(host: InMemoryHost, target: Target) -> None:
    """A file of /proc cannot be opened whenever the target is read."""

    def before_read(read: Target) -> None:
        if read == target:
            raise OSError(24, "Too many open files")

    host.before_read = before_read


def test_a_failure_unforeseen_of_one_target_keeps_no_other_one_from_its_undo(host, journal):
    exhausted(host, vcpu(0))
    with pytest.raises(OSError, match="Too many open files"):
        rollback(host, journal)
    (failing,) = host.threads[vcpu(0)]
    assert [tid for tid, mask in host.kernel().items() if host.before[tid] != mask] == [failing.tid]
    assert states(journal) == ["undone", "stuck", "undone"]
    assert journal.entries("run-1")[1].error == "guest g1 vcpu 0: [Errno 24] Too many open files"
    host.before_read = lambda target: None
    assert rollback(host, journal, "run-3").state == "rolled_back"
    assert host.kernel() == host.before


def test_a_recovery_ends_the_run_although_the_undo_of_one_target_fails_unforeseen(host, journal):
    """An open run would keep every later run from its begin."""
    journal.begin(make_run("run-2", kind="rollback", undoes="run-1"))
    journal.leave(make_run("run-2"))
    exhausted(host, vcpu(0))
    run = recover(host, journal, "back", lambda: NOON)
    assert run is not None
    assert (run.state, states(journal)) == ("rolled_back_partly", ["undone", "stuck", "undone"])
    host.before_read = lambda target: None
    assert rollback(host, journal, "run-3").state == "rolled_back"
    assert host.kernel() == host.before


@pytest.mark.fault(33)
@pytest.mark.parametrize("undoes", ["run-1", ""])
def test_a_rollback_whose_end_is_not_stored_is_no_failure(host, journal, monkeypatch, undoes):
    """The host has its masks, so the run stays open until a recovery stores its end."""
    end = journal.end

    def refused(*_: object) -> None:
        monkeypatch.setattr(journal, "end", end)
        raise StoreUnavailable("journal", "disk I/O error")

    monkeypatch.setattr(journal, "end", refused)
    with pytest.raises(StoreUnavailable):
        rollback(host, journal, undoes=undoes)
    assert journal.run("run-2").state == "running"
    recovered = recover(host, journal, "back", lambda: NOON)
    assert recovered is not None
    assert (recovered.state, journal.run("run-1").state) == ("rolled_back", "rolled_back")
    assert host.kernel() == host.before


def test_a_failure_unforeseen_ends_the_run(host, journal):
    def before_write(write: Write) -> None:
        raise OSError("unforeseen")

    host.before_write = before_write
    with pytest.raises(OSError, match="unforeseen"):
        rollback(host, journal)
    assert (journal.run("run-2").state, journal.run("run-2").error) == ("failed", "unforeseen")
    host.before_write = lambda write: None
    assert rollback(host, journal, "run-3").state == "rolled_back"
    assert host.kernel() == host.before
