import uuid
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.fakes.in_memory_host import InMemoryHost, Write, daemon, emulator, vcpu, vhost
from support.values import NOON, make_run

from pinner.apply import executor
from pinner.model.change import Target, group_of
from pinner.model.errors import ApplyFailed, Blocked, HostBusy, HostUnreachable, Invalid, RunConflict, StalePlan
from pinner.model.plan.plan import Plan, Wanted
from pinner.model.run.journal import Entry, Run
from pinner.store.journal.journal import StoredJournal


@pytest.fixture
def host():
    host = InMemoryHost()
    host.add(emulator(), "0-7", "0-7", "0-3")
    host.add(vcpu(0), "0-7")
    host.add(vcpu(1), "0-7")
    host.add(vhost(400), "0-7")
    host.add(daemon(500), "0-7", "0-7", "2-5")
    return host


def the_plan(host: InMemoryHost) -> Plan:
    wanted = {emulator(): "1", vcpu(0): "2-7", vcpu(1): "2-7", vhost(400): "1", daemon(500): "0"}
    return host.plan(*(host.change(target, after) for target, after in wanted.items()))


def wanted(plan: Plan) -> Plan:
    """The plan whose wanted affinities are those of its changes."""
    return replace(plan, wanted=tuple(Wanted(change.target, change.after, "so") for change in plan.changes))


WHOLE = make_run(all_or_nothing=True)
"""A run that makes all changes or none."""


def apply(plan: Plan, host: InMemoryHost, journal: StoredJournal, run: Run | None = None) -> Run:
    return executor.apply(plan, run or make_run(), host, journal, lambda: NOON, lambda entry, total: None)


def states(journal: StoredJournal, run: str = "run-1") -> list[str]:
    return [entry.state for entry in journal.entries(run)]


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


def fail_at(host: InMemoryHost, number: int, error: BaseException) -> None:
    """The write with that number (from 0) fails, after it has changed the host half: a failing pin may have."""

    def before_write(write: Write) -> None:
        if len(host.writes) == number:
            host.before_write = lambda write: None
            raise error

    host.before_write = before_write


ERRORS = [ApplyFailed("x", "no"), HostUnreachable("h1", "libvirtd died"), OSError("unforeseen"), KeyboardInterrupt()]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("number", range(7))
def test_a_failure_leaves_the_host_as_it_was(host, journal, number, error):
    plan = the_plan(host)
    before = host.kernel()
    fail_at(host, number, error)
    try:
        run = apply(plan, host, journal, WHOLE)
    except (OSError, KeyboardInterrupt) as raised:
        assert raised is error
        run = journal.run("run-1")
    assert host.kernel() == before
    assert run.state == "undone"
    assert run.error == (str(error) or "KeyboardInterrupt")
    assert journal.run("run-1") == run
    found = states(journal)
    assert found.count("failed") == 1
    assert set(found) <= {"failed", "undone"}


def test_an_undo_that_fails_unforeseen_keeps_no_other_one_from_its_undo(host, journal):
    """The error of the apply is raised, and the run has ended."""
    plan = the_plan(host)
    before = host.kernel()
    daemons = [change.target for change in plan.changes if change.target.kind == "process"]

    def before_read(target: Target) -> None:
        if host.writes and target == daemons[0]:
            raise OSError(24, "Too many open files")

    host.before_write = lambda write: setattr(host, "before_read", before_read) if len(host.writes) == 6 else None
    with pytest.raises(OSError, match="Too many open files"):
        apply(plan, host, journal, WHOLE)
    assert journal.run("run-1").state == "failed"
    moved = {tid for tid, mask in host.kernel().items() if before[tid] != mask}
    assert moved <= {thread.tid for thread in host.threads[daemons[0]]}
    assert states(journal).count("stuck") == 1


def test_changes_are_undone_in_reverse_order(host, journal):
    plan = the_plan(host)
    fail_at(host, 4, ApplyFailed("x", "no"))
    apply(plan, host, journal, WHOLE)
    undone = [what for what, _ in host.writes[4:]]
    firsts = list(dict.fromkeys(what for what in undone if what.startswith("guest")))
    assert firsts == ["guest g1 vcpu 1", "guest g1 vcpu 0", "guest g1 emulator"]


def test_a_failed_pin_that_changed_the_host_is_rewritten(host, journal):
    """A pin to a CPU that just went offline returns an error, and the mask is another one all the same."""
    plan = the_plan(host)
    before = host.kernel()

    def before_write(write: Write) -> None:
        if write == ("guest g1 vcpu 1", "2-7"):
            host.move(300, "6")
            raise ApplyFailed("guest g1 vcpu 1", "error 38")

    host.before_write = before_write
    assert apply(plan, host, journal, WHOLE).state == "undone"
    assert host.kernel() == before


def test_an_undo_that_fails_is_named(host, journal):
    plan = the_plan(host)
    host.definitions["uuid-g1"] = "<cputune/>"

    def before_write(write: Write) -> None:
        if write == ("400", "1"):
            raise ApplyFailed("thread 400", "no")
        if write == ("guest g1 vcpu 0", "0-7"):
            raise HostUnreachable("h1", "libvirtd died")

    host.before_write = before_write
    run = apply(plan, host, journal, WHOLE)
    assert run.state == "failed"
    assert states(journal) == ["undone", "stuck", "undone", "failed", "undone"]
    assert "libvirtd died" in journal.entries("run-1")[1].error
    assert host.kernel()[200] == "2-7"


def test_a_thread_that_another_program_moves_between_check_and_write_stays(host, journal):
    plan = the_plan(host)
    reads: list[int] = []

    def before_read(target):
        reads.append(1)
        if len(reads) == 6:
            host.move(502, "7")

    host.before_read = before_read
    run = apply(plan, host, journal, WHOLE)
    assert run.state == "undone"
    assert "another program moved it just now" in run.error
    assert host.kernel()[502] == "7"


@pytest.mark.parametrize("target", [emulator(), vcpu(0), vhost(400), daemon(500)], ids=str)
def test_a_target_that_ends_meanwhile_is_gone_and_the_others_go_on(host, journal, target):
    plan = the_plan(host)

    def before_write(write: Write) -> None:
        host.threads.pop(target, None)

    host.before_write = before_write
    host.add(vcpu(9), "0-7")
    plan = host.plan(host.change(vcpu(9), "3"), *plan.changes)
    run = apply(plan, host, journal)
    assert run.state == "applied"
    assert sorted(states(journal)) == ["done"] * 5 + ["gone"]
    assert next(entry for entry in journal.entries("run-1") if entry.state == "gone").change.target == target


def test_threads_that_are_born_meanwhile_are_journaled_before_they_are_moved(host, journal):
    plan = host.plan(host.change(daemon(500), "0"))
    born: list[int] = []
    known: list[Entry] = []

    def before_write(write: Write) -> None:
        if write[0] in ("500", "502"):
            born.append(host.bear(daemon(500), {"500": "0-7", "502": "2-5"}[write[0]]))
        if int(write[0]) in born:
            known.extend(journal.entries("run-1"))

    host.before_write = before_write
    assert apply(plan, host, journal).state == "applied"
    assert set(host.threads) and {str(t.cpus) for t in host.threads[daemon(500)]} == {"0"}
    found = {thread.tid: str(thread.cpus) for thread in known[0].found}
    assert found == {born[0]: "0-7", born[1]: "2-5"}


def test_births_without_end_make_the_change_fail(host, journal):
    plan = host.plan(host.change(daemon(500), "0"))

    def before_read(target):
        host.bear(target, "0-7")

    host.before_read = before_read
    run = apply(plan, host, journal)
    assert run.state in ("undone", "failed")
    assert "after 10 passes" in run.error


MASKS = st.sampled_from(["0-7", "0-3", "4-7", "2", "0,5"])
TARGETS = st.lists(
    st.tuples(st.sampled_from(["emulator", "vcpu", "process"]), st.lists(MASKS, min_size=1, max_size=4), MASKS),
    min_size=1,
    max_size=6,
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(targets=TARGETS, fails=st.integers(0, 30), controller=st.booleans(), whole=st.booleans())
def test_as_planned_or_as_it_was(journal, targets, fails, controller, whole):
    """Whichever write fails, each guest and process is as planned, or as it was; the placed ones can be undone exactly.

    A run that makes all changes or none leaves the whole host as planned, or as it was.
    """
    host = InMemoryHost(cpuset_controller=controller)
    changes = []
    for n, (kind, masks, after) in enumerate(targets):
        guest = f"g{n % 4}"
        target = {"emulator": emulator(guest), "vcpu": vcpu(n, guest), "process": daemon(100 * (n + 1))}[kind]
        if target in host.threads:
            continue
        host.add(target, *(masks[:1] if kind == "vcpu" else masks))
        changes.append(host.change(target, after))
    before, groups = host.kernel(), {group_of(change.target) for change in changes}
    fail_at(host, fails, ApplyFailed("x", "no"))
    name = uuid.uuid4().hex
    run = apply(host.plan(*changes), host, journal, make_run(name, all_or_nothing=whole))
    host.before_write = lambda write: None
    placed = {group_of(entry.change.target) for entry in journal.entries(name) if entry.state == "done"}
    for change in changes:
        made = group_of(change.target) in placed or not journal.entries(name)
        now = {thread.tid: thread.cpus for thread in host.threads[change.target]}
        assert now == {thread.tid: change.after if made else thread.cpus for thread in change.before}
    complete = placed == groups or not journal.entries(name)
    expected = "applied" if complete else "applied_partly" if placed else "undone"
    assert run.state == expected
    assert (expected != "applied_partly") or not whole
    if placed:
        back = make_run(f"{name}-back", kind="rollback", undoes=name)
        assert executor.rollback(back, host, journal, lambda: NOON, lambda *_: None).state == "rolled_back"
    assert host.kernel() == before


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
