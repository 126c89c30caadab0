"""A change that fails, a target that ends, and a thread that starts within a run."""

import uuid

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.fakes.applied_plan import apply, states, the_plan
from support.fakes.in_memory_host import InMemoryHost, Write, daemon, emulator, vcpu, vhost
from support.values import NOON, make_run

from pinner.apply import executor
from pinner.model.change import Target, group_of
from pinner.model.errors import ApplyFailed, HostUnreachable
from pinner.model.run.journal import Entry

WHOLE = make_run(all_or_nothing=True)
"""A run that makes all changes or none."""


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
