"""Which runs the retention keeps, because an undo may still need them."""

from datetime import timedelta

import pytest
from support.in_memory_host import InMemoryHost, vcpu
from support.values import NOON, make_run

from pinner.apply import executor
from pinner.apply.ended import can_be_undone

LATER = NOON + timedelta(days=365)


def apply(host, journal, name, *changes, **run):
    run = make_run(name, **run)
    return executor.apply(host.plan(*changes), run, host, journal, lambda: NOON, lambda entry, total: None)


def rollback(host, journal, name="back", undoes=""):
    run = make_run(name, kind="rollback", plan="", undoes=undoes)
    return executor.rollback(run, host, journal, lambda: NOON, lambda entry, total: None)


def purge(host, journal):
    return journal.purge(LATER, lambda run: can_be_undone(journal.run(run), journal.entries(run), host))


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
    assert host.definitions["uuid-g1"] == "<cputune/>"
    assert purge(host, journal) == 2
