"""A rollback of one run that wrote definitions, where later runs found its pins, masks or names from there."""

from dataclasses import replace

import pytest
from support.fakes.in_memory_host import defined_guest, emulator, vcpu
from support.values import NOON, cpus, make_run

from pinner.apply import executor, recover
from pinner.apply.steps.metadata import keeps_pins
from pinner.model.change import PartPin

pytestmark = pytest.mark.fault(50, 55, 59)

GUEST = "uuid-g1"


@pytest.fixture
def host():
    return defined_guest()


def apply(host, journal, name, target, after, *, persist=False):
    host.clock += 10
    run = make_run(name, boot=host.boot, persist=persist)
    ended = executor.apply(host.plan(host.change(target, after)), run, host, journal, lambda: NOON, lambda *_: None)
    assert (ended.state, len(journal.entries(name))) == ("applied", 2)


def roll_back(host, journal, undoes, *, interrupted=False):
    run = make_run(f"back-{undoes}", kind="rollback", plan="", undoes=undoes, boot=host.boot)
    if interrupted:
        journal.begin(run)
        journal.leave(run)
        ended = recover.recover(host, journal, "back", lambda: NOON, host.boot)
    else:
        ended = executor.rollback(run, host, journal, lambda: NOON, lambda *_: None)
    assert (ended.state, ended.error) == ("rolled_back", "")


def restart(host, journal):
    """The host and the guest restart; the emulator has the pin of the definition."""
    host.boot, host.clock = "boot-2", 100
    mask = host.definitions[GUEST].partition("[emulator ")[2].rstrip("]") or "0-7"
    host.threads[emulator()] = [replace(each, started=50, cpus=cpus(mask)) for each in host.threads[emulator()]]
    host.names = dict(host.defined_names)
    journal.end_earlier_boots(host.boot, NOON, lambda guest: keeps_pins(guest, host))


def mask(host, target):
    return str(host.threads[target][0].cpus)


def assert_nothing_is_left(host):
    assert (mask(host, vcpu(0)), host.definitions[GUEST]) == ("0-7", "<cputune/>")
    assert (host.names, host.defined_names) == ({}, {})


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("last", ["r2", ""])
def test_a_pin_that_a_later_run_gave_again_comes_back_to_no_definition(host, journal, last, restarts, interrupted):
    """Another program moves the thread in between, so that the later run changes it."""
    apply(host, journal, "r1", emulator(), "4", persist=True)
    if restarts:
        restart(host, journal)
    host.move(100, "0-7")
    apply(host, journal, "r2", emulator(), "4", persist=True)
    roll_back(host, journal, "r1", interrupted=interrupted)
    apply(host, journal, "r3", emulator(), "4", persist=True)
    for run in ("r3", "r2") if last else ("",):
        roll_back(host, journal, run)
    assert_nothing_is_left(host)


@pytest.mark.parametrize("last", ["r2", ""])
def test_a_vcpu_gets_no_mask_back_that_an_emulator_had_from_a_definition_of_an_earlier_boot(host, journal, last):
    apply(host, journal, "r1", emulator(), "1", persist=True)
    restart(host, journal)
    host.threads[vcpu(0)] = [replace(each, started=60, cpus=cpus("1")) for each in host.threads[vcpu(0)]]
    apply(host, journal, "r2", vcpu(0), "5")
    roll_back(host, journal, "r1")
    roll_back(host, journal, last)
    assert_nothing_is_left(host)


def test_a_live_name_of_an_earlier_boot_is_in_no_record_of_a_later_run(host, journal):
    """The journal has no run of that name, which ended with the restart."""
    host.names[GUEST] = (PartPin("emulator", None, cpus("0")),)
    apply(host, journal, "r1", emulator(), "1", persist=True)
    restart(host, journal)
    host.move(100, "3")
    apply(host, journal, "r2", emulator(), "1")
    roll_back(host, journal, "r1")
    apply(host, journal, "r3", emulator(), "1")
    roll_back(host, journal, "")
    assert_nothing_is_left(host)
