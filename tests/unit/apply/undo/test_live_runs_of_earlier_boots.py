"""A run without --persist ended with the host's restart; a later run with --persist had found its masks."""

from dataclasses import replace

import pytest
from support.fakes.in_memory_host import defined_guest, emulator, vcpu
from support.values import NOON, cpus, make_run

from pinner.apply import executor, recover
from pinner.apply.steps.metadata import keeps_pins
from pinner.model.change import PartPin

pytestmark = pytest.mark.fault(55, 59)

GUEST = "uuid-g1"


@pytest.fixture
def host():
    return defined_guest()


def apply(host, journal, name, target, after, *, persist=False):
    host.clock += 10
    run = make_run(name, boot=host.boot, persist=persist)
    executor.apply(host.plan(host.change(target, after)), run, host, journal, lambda: NOON, lambda *_: None)


def restart(host, journal, **masks):
    """The host restarts, the agent starts, and then the guest from its definition, where it has these pins."""
    threads, host.threads, host.names = host.threads, {}, {}
    host.boot += "+"
    host.clock = 50
    journal.end_earlier_boots(host.boot, NOON, lambda guest: keeps_pins(guest, host))
    host.threads = {
        target: [replace(thread, started=40, cpus=cpus(masks.get(str(target).split()[-1], "0-7"))) for thread in each]
        for target, each in threads.items()
    }
    host.names |= host.defined_names


def roll_back(host, journal, undoes, *, interrupted=False):
    run = make_run(f"back-{undoes}", kind="rollback", plan="", undoes=undoes, boot=host.boot)
    if not interrupted:
        return executor.rollback(run, host, journal, lambda: NOON, lambda *_: None)
    journal.begin(run)
    journal.leave(run)
    return recover.recover(host, journal, "back", lambda: NOON, host.boot)


def mask(host, target):
    return str(host.threads[target][0].cpus)


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize("undoes", ["r2", ""])
def test_its_mask_comes_back_to_no_thread(host, journal, undoes, interrupted):
    apply(host, journal, "r1", vcpu(0), "4")
    apply(host, journal, "r2", vcpu(0), "5", persist=True)
    restart(host, journal, **{"0": "5"})
    assert roll_back(host, journal, undoes, interrupted=interrupted).state == "rolled_back"
    assert (mask(host, vcpu(0)), host.definitions[GUEST]) == ("0-7", "<cputune/>")
    assert (host.names, host.defined_names) == ({}, {})


@pytest.mark.parametrize("undoes", ["r2", ""])
def test_a_vcpu_that_was_plugged_in_on_its_mask_gets_the_usual_one(host, journal, undoes):
    apply(host, journal, "r1", emulator(), "1")
    host.add(vcpu(1), "1")
    host.threads[vcpu(1)] = [replace(thread, started=host.clock + 1) for thread in host.threads[vcpu(1)]]
    apply(host, journal, "r2", vcpu(1), "5", persist=True)
    restart(host, journal, **{"1": "5"})
    assert roll_back(host, journal, undoes).state == "rolled_back"
    assert mask(host, vcpu(1)) == "0-7"


@pytest.mark.parametrize("between", [False, True])
def test_the_mask_that_the_definition_has_comes_back(host, journal, between):
    """``between``: a live run gave another mask between the two persistent ones."""
    apply(host, journal, "r1", vcpu(0), "4", persist=True)
    if between:
        apply(host, journal, "live", vcpu(0), "6")
    apply(host, journal, "r2", vcpu(0), "5", persist=True)
    restart(host, journal, **{"0": "5"})
    assert roll_back(host, journal, "r2").state == "rolled_back"
    assert (mask(host, vcpu(0)), host.definitions[GUEST]) == ("4", "<cputune/>[vcpu 0: 4]")
    if between:
        roll_back(host, journal, "live")  # which is gone
    assert roll_back(host, journal, "r1").state == "rolled_back"
    assert (mask(host, vcpu(0)), host.definitions[GUEST]) == ("0-7", "<cputune/>")
    assert (host.names, host.defined_names) == ({}, {})


def test_a_pin_of_the_definition_comes_back_although_a_live_run_gave_another_part_the_same_mask(host, journal):
    host.definitions[GUEST] = "<cputune/>[vcpu 0: 5]"
    host.move(host.threads[vcpu(0)][0].tid, "5")
    apply(host, journal, "r1", emulator(), "2-3", persist=True)
    apply(host, journal, "live", vcpu(0), "2-3")
    restart(host, journal, **{"0": "5", "emulator": "2-3"})
    apply(host, journal, "r2", emulator(), "4", persist=True)
    restart(host, journal, **{"0": "5", "emulator": "4"})
    assert roll_back(host, journal, "r2").state == "rolled_back"
    assert (mask(host, emulator()), mask(host, vcpu(0))) == ("2-3", "5")
    assert host.definitions[GUEST] == "<cputune/>[vcpu 0: 5][emulator 2-3]"
    assert roll_back(host, journal, "r1").state == "rolled_back"
    assert (mask(host, emulator()), host.definitions[GUEST]) == ("0-7", "<cputune/>[vcpu 0: 5]")


def test_an_apply_that_died_with_the_host_leaves_no_mask_of_it(host, journal):
    apply(host, journal, "r1", vcpu(0), "4")

    def die(write):
        if "metadata" not in write[0]:
            host.definitions[GUEST] += "[vcpu 0: 5]"
            raise KeyboardInterrupt

    host.before_write = die
    with pytest.raises(KeyboardInterrupt):
        apply(host, journal, "r2", vcpu(0), "5", persist=True)
    host.before_write = lambda write: None
    restart(host, journal, **{"0": "5"})
    assert recover.recover(host, journal, "back", lambda: NOON, host.boot).state == "undone"
    assert (mask(host, vcpu(0)), host.definitions[GUEST]) == ("0-7", "<cputune/>")


def test_the_saved_image_of_a_guest_names_its_pin_until_it_is_rolled_back(host, journal):
    live, persistent = (PartPin("vcpu", 0, cpus(mask)) for mask in ("4", "5"))
    apply(host, journal, "r1", vcpu(0), "4")
    host.live_pins[GUEST] = (live,)
    apply(host, journal, "r2", vcpu(0), "5", persist=True)
    host.save(GUEST, persistent)
    host.boot = "boot-2"
    journal.end_earlier_boots(host.boot, NOON, lambda guest: keeps_pins(guest, host))
    assert roll_back(host, journal, "r2").state == "rolled_back"
    assert (host.saved_pins[GUEST], host.saved[GUEST]) == ((live,), (live,))
    assert (host.definitions[GUEST], host.defined_names) == ("<cputune/>", {})
    assert roll_back(host, journal, "r1").state == "rolled_back"
    assert (host.saved_pins[GUEST], host.saved[GUEST]) == ((), ())
