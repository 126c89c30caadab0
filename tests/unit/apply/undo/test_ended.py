"""Which runs the retention keeps, because an undo may still need them."""

from datetime import timedelta

import pytest
from support.fakes.in_memory_host import InMemoryHost, daemon, vcpu
from support.values import NOON, make_run

from pinner.apply import executor
from pinner.apply.undo import all_runs

LATER = NOON + timedelta(days=365)


def apply(host, journal, name, *changes, **run):
    run = make_run(name, **run)
    return executor.apply(host.plan(*changes), run, host, journal, lambda: NOON, lambda entry, total: None)


def rollback(host, journal, name="back", undoes=""):
    run = make_run(name, kind="rollback", plan="", undoes=undoes)
    return executor.rollback(run, host, journal, lambda: NOON, lambda entry, total: None)


def purge(host, journal):
    return all_runs.purge(journal, LATER, host, "h1")


@pytest.fixture
def host():
    host = InMemoryHost()
    host.add(vcpu(0), "0-7")
    host.add(vcpu(0, "g2"), "0-7")
    host.definitions |= {"uuid-g1": "", "uuid-g2": ""}
    return host


@pytest.mark.fault(57, 59)
@pytest.mark.parametrize("other_fails", [False, True])
def test_a_definition_that_a_guest_left_behind_is_kept_until_it_is_restored(host, journal, other_fails):
    """The guest ended between the pin and its reading back."""

    def ends(write):
        host.occupied = {"uuid-g2"} if other_fails else set()
        host.before_read = lambda target: host.threads.pop(vcpu(0), None)

    host.before_write = ends
    changes = (host.change(vcpu(0), "4"), *((host.change(vcpu(0, "g2"), "5"),) if other_fails else ()))
    run = apply(host, journal, "r1", *changes, persist=True)
    host.before_write, host.before_read = lambda write: None, lambda target: None
    assert run.state == ("applied_partly" if other_fails else "applied")
    assert (host.definitions["uuid-g1"], journal.entries("r1")[0].state) == ("[vcpu 0: 4]", "gone")
    assert purge(host, journal) == 0
    rollback(host, journal)
    assert host.definitions["uuid-g1"] == ""
    assert purge(host, journal) == 2


@pytest.mark.fault(50, 57, 59)
def test_the_run_from_which_a_placed_child_has_its_prior_mask_is_kept(host, journal):
    """The parent has ended, and no other process has the mask that it was given."""
    parent = host.add(daemon(300), "0-7")
    apply(host, journal, "r1", host.change(parent, "0"))
    child = host.fork(parent, 900)
    apply(host, journal, "r2", host.change(child, "1"))
    del host.threads[parent]
    assert purge(host, journal) == 0
    assert rollback(host, journal).state == "rolled_back"
    assert str(host.threads[child][0].cpus) == "0-7"
    assert purge(host, journal) == 3


@pytest.mark.fault(50, 57, 59)
def test_earlier_runs_of_a_process_are_kept_for_the_children_of_a_later_one(host, journal):
    """Of r1 alone no process has the mask any more, but r2 found that mask as the prior one."""
    parent = host.add(daemon(300), "0-7")
    apply(host, journal, "r1", host.change(parent, "0"))
    apply(host, journal, "r2", host.change(parent, "1"))
    child = host.fork(parent, 900)
    del host.threads[parent]
    assert purge(host, journal) == 0
    rollback(host, journal)
    assert str(host.threads[child][0].cpus) == "0-7"


@pytest.mark.fault(50, 57, 59)
def test_a_line_of_ended_ancestors_is_kept_and_no_other_run(host, journal):
    """Retention keeps one run for each mask that was inherited, however many processes had the mask."""
    parent = host.add(daemon(300), "0-7")
    apply(host, journal, "r1", host.change(parent, "0"))
    for number in range(5):  # the service starts again and again, and each new process is placed
        process = host.add(daemon(301 + number), "0-7")
        apply(host, journal, f"again-{number}", host.change(process, "0"))
        del host.threads[process]
    child = host.fork(parent, 900)
    apply(host, journal, "r2", host.change(child, "1"))
    grandchild = host.fork(child, 901)
    apply(host, journal, "r3", host.change(grandchild, "2"))
    del host.threads[parent], host.threads[child]
    assert purge(host, journal) == 5
    assert purge(host, journal) == 0
    rollback(host, journal)
    assert str(host.threads[grandchild][0].cpus) == "0-7"
