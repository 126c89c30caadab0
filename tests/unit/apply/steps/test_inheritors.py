"""The processes that a placed process forks: they get back what they would have had."""

import pytest
from support.fakes.in_memory_host import InMemoryHost, daemon
from support.values import NOON, cpus, make_run

from pinner.apply import executor, recover
from pinner.model.change import ThreadKey, ThreadMask
from pinner.model.errors import ApplyFailed

pytestmark = pytest.mark.fault(50)


@pytest.fixture
def host(journal):
    """A host with an applied run-1 that moved a process to CPU 0."""
    host = InMemoryHost()
    host.add(daemon(100), "0-7")
    host.threads[daemon(100)] = [ThreadMask(100, 7, cpus("0-7"))]
    apply(host, journal, "run-1", "0")
    return host


def apply(host, journal, name, after):
    plan = host.plan(host.change(daemon(100), after))
    assert executor.apply(plan, make_run(name), host, journal, lambda: NOON, lambda *_: None).state == "applied"


def rollback(host, journal):
    run = make_run("back", kind="rollback", undoes="run-1")
    return executor.rollback(run, host, journal, lambda: NOON, lambda *_: None)


def mask(host, target):
    return str(host.threads[target][0].cpus)


def test_children_and_grandchildren_are_written_to_the_journal_and_then_moved(host, journal):
    child = host.fork(daemon(100), 900)
    grandchild = host.fork(child, 901)
    seen = {}
    host.before_write = lambda write: seen.setdefault(write[0], journal.entries("run-1")[0].inheritors)
    assert rollback(host, journal).state == "rolled_back"
    assert (mask(host, child), mask(host, grandchild)) == ("0-7", "0-7")
    assert [thread.tid for thread in seen["900"]] == [900, 901]
    (entry,) = journal.entries("run-1")
    assert (entry.state, {str(thread.cpus) for thread in entry.inheritors}) == ("undone", {"0"})


def test_a_child_that_was_moved_since_keeps_its_mask(host, journal):
    child = host.fork(daemon(100), 900)
    host.move(900, "0-1")
    assert rollback(host, journal).state == "rolled_back"
    assert mask(host, child) == "0-1"


def test_a_child_that_is_moved_during_the_rollback_keeps_its_mask(host, journal):
    child, other = host.fork(daemon(100), 900), host.fork(daemon(100), 901)
    host.before_write = lambda write: host.move(901, "0-1") if write[0] == "900" else None
    assert rollback(host, journal).state == "rolled_back"
    assert (mask(host, child), mask(host, other)) == ("0-7", "0-1")


def test_the_children_of_a_process_that_has_ended_get_its_mask(host, journal):
    child = host.fork(daemon(100), 900)
    del host.threads[daemon(100)]
    assert rollback(host, journal).state == "rolled_back_partly"
    assert mask(host, child) == "0-7"


def test_a_child_that_forks_while_it_is_restored_leaves_none_behind(host, journal):
    child = host.fork(daemon(100), 900)

    def fork(write):
        if write[0] == "900" and len(host.threads) < 6:
            host.fork(child, 900 + len(host.threads))

    host.before_write = fork
    assert rollback(host, journal).state == "rolled_back"
    assert set(host.kernel().values()) == {"0-7"}


def test_a_failed_apply_gives_the_children_of_its_processes_their_mask_back(journal):
    host = InMemoryHost()
    host.threads[daemon(100)] = [ThreadMask(100, 7, cpus("0-7"))]
    host.threads[daemon(200)] = [ThreadMask(200, 7, cpus("0-7"))]

    def refuse(write):
        if write[0] == "200":
            host.fork(daemon(100), 900)
            raise ApplyFailed(write[0], "refused")

    host.before_write = refuse
    plan = host.plan(host.change(daemon(100), "0"), host.change(daemon(200), "0"))
    executor.apply(plan, make_run(all_or_nothing=True), host, journal, lambda: NOON, lambda *_: None)
    assert set(host.kernel().values()) == {"0-7"}


def test_a_process_that_may_be_a_child_is_named_and_keeps_its_mask(host, journal):
    """Its parent runs the same program on the same CPUs, and pinner has not placed that parent."""
    child = host.fork(daemon(100), 900)
    del host.parents[child]
    host.unsure[child] = daemon(100)
    run = rollback(host, journal)
    assert run.state == "rolled_back_partly"
    assert "threads 900 run the program of process busyd (100) on CPUs 0 and are left there" in run.error
    assert "taskset -cp 0-7 TID" in run.error
    assert mask(host, child) == "0"
    assert mask(host, daemon(100)) == "0-7"


def test_the_journal_knows_when_each_process_got_its_first_mask(host, journal):
    since = journal.entries("run-1")[0].lineage.since
    host.clock += 100
    apply(host, journal, "run-2", "1")
    assert journal.placed_processes() == {ThreadKey(100, 7): since}


@pytest.mark.parametrize("is_killed", [False, True])
def test_the_children_of_a_process_that_ends_during_its_change_get_its_mask(host, journal, monkeypatch, is_killed):
    """It forks when it has the mask, and ends before pinner reads the mask back. Or pinner is killed just then, and the
    process has ended before the recovery."""
    parent = host.add(daemon(200), "0-7")
    other = host.add(daemon(201), "0-7")
    born = []

    def fork_and_end(tid, mask, write=host._write):
        write(tid, mask)
        monkeypatch.setattr(host, "_write", write)
        born.append(host.fork(parent, 900))
        del host.threads[parent]
        if is_killed:
            raise KeyboardInterrupt

    monkeypatch.setattr(host, "_write", fork_and_end)
    plan = host.plan(host.change(parent, "0"), host.change(other, "0"))
    if is_killed:
        with monkeypatch.context() as dead:
            dead.setattr(executor.Transaction, "_undo_groups", lambda *_: None)
            dead.setattr(journal, "end", lambda *_: journal.leave(journal.run("run-2")))
            with pytest.raises(KeyboardInterrupt):
                executor.apply(plan, make_run("run-2"), host, journal, lambda: NOON, lambda *_: None)
        ended = recover.recover(host, journal, "forward", lambda: NOON)
    else:
        ended = executor.apply(plan, make_run("run-2"), host, journal, lambda: NOON, lambda *_: None)
    assert ended.state == "applied"
    assert [entry.state for entry in journal.entries("run-2")] == ["gone", "done"]
    assert (mask(host, born[0]), mask(host, other)) == ("0-7", "0")
