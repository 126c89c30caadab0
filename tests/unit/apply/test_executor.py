from dataclasses import replace

import pytest
from support.fakes.applied_plan import apply, states, the_plan, wanted
from support.fakes.in_memory_host import InMemoryHost, daemon, emulator, vcpu
from support.values import NOON, make_run

from pinner.apply import executor
from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Blocked, HostBusy, HostUnreachable, Invalid, RunConflict, StalePlan
from pinner.model.machine.process import CpuLimit
from pinner.model.plan.plan import Wanted
from pinner.model.run.journal import Run
from pinner.model.snapshot import cgroup_target
from pinner.model.states import PartitionState


@pytest.mark.parametrize("cpuset_controller", [True, False])
def test_every_thread_ends_where_the_plan_says(journal, cpuset_controller):
    """Without the cpuset controller libvirt's pin moves an emulator's main thread alone."""
    host = InMemoryHost(cpuset_controller=cpuset_controller)
    host.add(emulator(), "0-7", "0-7", "0-3")
    host.add(daemon(500), "0-7", "2-5")
    seen: list[tuple[int, str, int]] = []
    plan = host.plan(host.change(emulator(), "1"), host.change(daemon(500), "0"))
    run = executor.apply(
        plan, make_run(), host, journal, lambda: NOON, lambda entry, total: seen.append((entry.seq, entry.state, total))
    )
    assert run.state == "applied"
    assert run.ended_at == NOON
    assert host.kernel() == {100: "1", 101: "1", 102: "1", 200: "0", 201: "0"}
    assert seen == [(1, "intent", 2), (1, "done", 2), (2, "done", 2)]
    assert journal.run("run-1") == run
    assert states(journal) == ["done", "done"]
    assert [entry.change for entry in journal.entries("run-1")] == list(plan.changes)


def test_all_intents_are_in_the_journal_before_the_first_write(host, journal):
    seen: list[list[str]] = []
    host.before_write = lambda write: seen.append(states(journal))
    apply(the_plan(host), host, journal)
    assert seen[0] == ["intent"] * 5


def test_an_apply_with_nothing_to_change_does_not_look_for_parts_that_were_plugged_in(host, journal, monkeypatch):
    plan = wanted(the_plan(host))
    assert apply(plan, host, journal).state == "applied"
    monkeypatch.setattr(host, "parts", lambda guest: pytest.fail(f"the threads of {guest} are read"))
    assert apply(plan, host, journal, make_run("run-2")).state == "applied"
    assert states(journal, "run-2") == []


def test_a_second_apply_changes_nothing(host, journal):
    plan = the_plan(host)
    apply(plan, host, journal)
    host.writes.clear()
    second = apply(plan, host, journal, make_run("run-2"))
    assert second.state == "applied"
    assert journal.entries("run-2") == ()
    assert host.writes == []
    undo = make_run("run-3", kind="rollback", undoes="run-2")
    with pytest.raises(RunConflict, match="run run-2 is applied: it changed nothing, so there is nothing to roll back"):
        executor.rollback(undo, host, journal, lambda: NOON, lambda *_: None)
    assert journal.run("run-2").state == "applied"


def test_an_empty_plan_is_applied(host, journal):
    assert apply(host.plan(), host, journal).state == "applied"
    assert host.writes == []


def _end(target):
    return lambda host: host.threads.pop(target)


STALE = {
    "other CPUs": (lambda host: setattr(host, "hardware", "g"), "CPUs, nodes or kernel arguments"),
    "a vCPU moved": (lambda host: host.move(200, "3"), "guest g1 vcpu 0 thread 200 may run on 3, no longer on 0-7"),
    "an emulator thread moved": (lambda host: host.move(101, "3"), "guest g1 emulator thread 101 may run on 3"),
    "a vhost thread moved": (lambda host: host.move(400, "3"), "guest g1 vhost 400 thread 400 may run on 3"),
    "a process moved": (
        lambda host: host.move(502, "3"),
        "process busyd .500. thread 502 may run on 3, no longer on 2-5",
    ),
    "a guest ended": (_end(emulator()), "guest g1 emulator is gone"),
    "a vCPU was unplugged": (_end(vcpu(1)), "guest g1 vcpu 1 is gone"),
    "a guest was restarted": (lambda host: host.add(vcpu(0), "0-7"), "guest g1 vcpu 0 has other threads"),
    "a strange emulator thread": (
        lambda host: host.bear(emulator(), "5"),
        "guest g1 emulator has a new thread 103 on 5",
    ),
}


@pytest.mark.parametrize(("happen", "words"), STALE.values(), ids=STALE)
def test_a_stale_plan_is_refused(host, journal, happen, words):
    plan = the_plan(host)
    happen(host)
    before = host.kernel()
    with pytest.raises(StalePlan, match=words):
        apply(plan, host, journal)
    assert host.kernel() == before
    assert host.writes == []
    assert journal.entries("run-1") == ()


def test_everything_that_moved_is_named(host, journal):
    plan = the_plan(host)
    host.move(200, "3")
    host.move(501, "4")
    with pytest.raises(StalePlan) as error:
        apply(plan, host, journal)
    assert len(error.value.details["moved"]) == 2


def test_threads_that_come_and_go_make_no_plan_stale(host, journal):
    plan = the_plan(host)
    del host.threads[emulator()][1]
    worker = host.bear(emulator(), "0-7")
    del host.threads[daemon(500)][0]
    own = host.bear(daemon(500), "0-7")
    foreign = host.bear(daemon(500), "6")
    assert apply(plan, host, journal).state == "applied"
    assert host.kernel() == {
        100: "1", 102: "1", worker: "1", 200: "2-7", 300: "2-7", 400: "1", 501: "0", 502: "0", own: "0", foreign: "6",
    }  # fmt: skip


def test_a_process_that_ended_needs_no_cpus(host, journal):
    plan = the_plan(host)
    host.threads.pop(daemon(500))
    assert apply(plan, host, journal).state == "applied"
    assert states(journal) == ["done"] * 4 + ["gone"]


def test_a_blocked_plan_is_refused(host, journal):
    with pytest.raises(Blocked, match="a reboot is needed"):
        apply(host.plan(host.change(vcpu(0), "1"), blocked="a reboot is needed"), host, journal)
    assert host.writes == []


def test_persist_is_refused_for_a_transient_guest(host, journal):
    with pytest.raises(Invalid, match="persist: 'g1' is not valid"):
        apply(the_plan(host), host, journal, make_run(persist=True))
    assert host.writes == []


def test_persist_journals_the_definition_as_it_was(host, journal):
    host.definitions["uuid-g1"] = "<cputune/>"
    apply(the_plan(host), host, journal, make_run(persist=True))
    assert host.definitions["uuid-g1"] == "<cputune/>[emulator 1][vcpu 0: 2-7][vcpu 1: 2-7]"
    assert [entry.definition for entry in journal.entries("run-1")][:3] == ["<cputune/>"] * 3


def test_a_host_that_does_not_answer_when_a_run_begins_gets_no_change(host, journal):
    def refuse(_):
        raise HostUnreachable("h1", "libvirt does not answer")

    plan = the_plan(host)
    host.before_read = refuse
    with pytest.raises(HostUnreachable):
        apply(plan, host, journal)
    assert (host.writes, journal.entries("run-1"), journal.run("run-1").state) == ([], (), "failed")


def test_one_run_at_a_time(host, journal):
    journal.begin(make_run("other"))
    with pytest.raises(HostBusy, match="other"):
        apply(the_plan(host), host, journal)
    assert host.writes == []


@pytest.mark.fault(27)
def test_a_run_that_ends_just_before_makes_the_plan_stale(host, journal):
    """The apply sees its changes, because it locks the host before it reads it."""
    plan = the_plan(host)
    begin = journal.begin

    def late(run: Run) -> None:
        host.move(200, "3")
        begin(run)

    journal.begin = late
    with pytest.raises(StalePlan, match="thread 200 may run on 3, no longer on 0-7"):
        apply(plan, host, journal)
    assert host.writes == []
    assert (journal.run("run-1").state, journal.entries("run-1")) == ("failed", ())


@pytest.mark.fault(12)
@pytest.mark.parametrize(("kind", "made"), [("vcpu", vcpu(2)), ("iothread", Target("iothread", "uuid-g1", 3, "g1"))])
def test_a_part_that_is_plugged_in_after_the_plan_makes_it_stale(host, journal, kind, made):
    """It would float over every CPU that the plan gives to others."""
    plan = wanted(the_plan(host))
    host.add(made, "0-7")
    with pytest.raises(StalePlan, match=f"guest g1 {kind} {made.part} was plugged in"):
        apply(plan, host, journal)
    host.threads.pop(made)
    assert apply(plan, host, journal, make_run("run-2")).state == "applied"


@pytest.mark.parametrize(
    ("then", "now", "words"),
    [
        ("3-11,15-23", "3-11", "cgroup machine.slice allows CPUs 3-11, no longer 3-11,15-23"),
        ("", "3-11", "cgroup machine.slice allows CPUs 3-11"),
        ("3-11", "", "cgroup machine.slice leaves out no CPU, no longer 3-11"),
    ],
)
def test_a_slice_that_changed_after_the_plan_makes_it_stale(host, journal, then, now, words):
    def limits(text):
        return (CpuLimit("machine.slice", CpuSet.parse(text)),) if text else ()

    plan = wanted(the_plan(host))
    plan = replace(plan, basis=replace(plan.basis, cpu_limits={"uuid-g1": limits(then)}))
    host.limits = limits(now)
    with pytest.raises(StalePlan) as stale:
        apply(plan, host, journal)
    assert str(stale.value).endswith(words)
    assert not host.writes
    host.limits = limits(then)
    assert apply(plan, host, journal, make_run("run-2")).state == "applied"


def test_a_slice_that_the_plan_makes_a_partition_itself_does_not_make_it_stale(host, journal):
    plan = wanted(the_plan(host))
    slice_ = Wanted(
        cgroup_target("machine.slice"), CpuSet.parse("3-7"), "", PartitionState("root", CpuSet.parse("3-7"))
    )
    plan = replace(plan, wanted=(*plan.wanted, slice_))
    host.limits = (CpuLimit("machine.slice", CpuSet.parse("3-7")),)
    assert apply(plan, host, journal).state == "applied"


def test_a_guest_that_was_excluded_after_the_plan_makes_it_stale(host, journal):
    plan = wanted(the_plan(host))
    host.marked = {"uuid-g1"}
    with pytest.raises(StalePlan, match="guest g1 is excluded by its metadata"):
        apply(plan, host, journal)
    assert not host.writes
    host.marked = set()
    assert apply(plan, host, journal, make_run("run-2")).state == "applied"


def test_a_release_changes_an_excluded_guest(host, journal):
    """The guest was excluded after it had been placed, and is being migrated away."""
    host.marked = {"uuid-g1"}
    release = replace(wanted(the_plan(host)), purpose="release")
    assert apply(release, host, journal).state == "applied"
