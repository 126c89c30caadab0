"""A guest is saved after a run has pinned it: the undo restores its saved image, in this boot and in later ones."""

import pytest
from support.fakes.in_memory_host import InMemoryHost, daemon, emulator, vcpu
from support.values import NOON, cpus, make_run

from pinner.apply import executor
from pinner.apply.recover import recover
from pinner.apply.steps.metadata import keeps_pins, with_metadata
from pinner.apply.undo.all_runs import can_be_undone
from pinner.model.change import PartPin, overlaid
from pinner.model.errors import ApplyFailed, Busy
from pinner.model.run.journal import Entry

pytestmark = pytest.mark.fault(76)

GUEST = "uuid-g1"
EMULATOR, VCPU = PartPin("emulator", None, cpus("0")), PartPin("vcpu", 0, cpus("4-7"))
BEFORE = PartPin("vcpu", 0, cpus("0-3"))


@pytest.fixture
def host():
    host = InMemoryHost()
    host.has_metadata = True
    host.add(emulator(), "0-7", "0-7")
    host.add(vcpu(0), "0-3")
    host.add(daemon(400), "0-7")
    host.definitions[GUEST] = "<cputune/>"
    host.live_pins[GUEST] = (BEFORE,)
    return host


def apply(host, journal, name="run-1", **run):
    changes = (host.change(emulator(), "0"), host.change(vcpu(0), "4-7"))
    values = {"boot": "boot-1"} | run
    plan = host.plan(*changes)
    return executor.apply(plan, make_run(name, **values), host, journal, lambda: NOON, lambda *_: None)


def leave(host, journal, name, *changes, persist=False):
    """A run whose process was killed when the metadata named its pins."""
    run = make_run(name, boot="boot-1", persist=persist)
    changes = tuple(with_metadata(changes, host))
    definition = "<cputune/>" if persist else ""
    journal.begin(run)
    journal.intend(*(Entry(name, n, each, "intent", NOON, definition=definition) for n, each in enumerate(changes, 1)))
    journal.leave(run)
    host.names[GUEST] = overlaid(host.names.get(GUEST, ()), changes[0].pins)
    if persist:
        host.defined_names[GUEST] = changes[0].pins


def roll_back(host, journal, undoes="run-1", name="back", boot="boot-1"):
    undo = make_run(name, kind="rollback", undoes=undoes, boot=boot, **({} if undoes else {"plan": ""}))
    return executor.rollback(undo, host, journal, lambda: NOON, lambda *_: None)


def save_after_two_runs(host, journal):
    """The second run moves a vCPU that the first one has placed."""
    apply(host, journal)
    host.live_pins[GUEST] = (EMULATOR, VCPU)
    plan = host.plan(host.change(vcpu(0), "5"))
    executor.apply(plan, make_run("run-2", boot="boot-1"), host, journal, lambda: NOON, lambda *_: None)
    host.save(GUEST, EMULATOR, PartPin("vcpu", 0, cpus("5")))


def restart_host(host, journal):
    host.boot = "boot-2"
    journal.end_earlier_boots("boot-2", NOON, lambda guest: keeps_pins(guest, host))


def start(host):
    """The guest starts from its image, in new threads."""
    for target, pin in ((emulator(), EMULATOR), (vcpu(0), VCPU)):
        host.add(target, *[str(pin.cpus)] * (2 if target == emulator() else 1))
    host.names[GUEST] = host.saved.pop(GUEST)
    del host.saved_pins[GUEST]


def image(host):
    return host.saved_pins[GUEST], host.saved[GUEST]


@pytest.mark.parametrize("undoes", ["run-1", ""], ids=["one run", "all runs"])
@pytest.mark.parametrize("boot", ["boot-1", "boot-2"], ids=["same boot", "later boot"])
@pytest.mark.parametrize("persist", [False, True])
def test_the_image_gets_the_pins_and_names_from_before(host, journal, undoes, boot, persist):
    assert apply(host, journal, persist=persist).state == "applied"
    host.save(GUEST, EMULATOR, VCPU)
    if boot == "boot-2":
        restart_host(host, journal)
    run = roll_back(host, journal, undoes, boot=boot)
    assert (run.state, run.error) == ("rolled_back", "")
    assert image(host) == ((BEFORE,), ())
    assert host.defined_names.get(GUEST, ()) == ()


@pytest.mark.parametrize("undoes", ["run-1", ""], ids=["one run", "all runs"])
def test_a_guest_that_started_from_its_image_after_a_restart_of_the_host_gets_its_affinity(host, journal, undoes):
    apply(host, journal)
    host.save(GUEST, EMULATOR, VCPU)
    start(host)
    restart_host(host, journal)
    run = roll_back(host, journal, undoes, boot="boot-2")
    assert (run.state, run.error) == ("rolled_back", "")
    assert {str(each.cpus) for each in host.threads[emulator()]} == {"0-7"}
    assert [str(each.cpus) for each in host.threads[vcpu(0)]] == ["0-3"]
    assert host.names == {}


def test_a_guest_that_started_without_an_image_after_a_restart_is_not_touched(host, journal):
    apply(host, journal)
    host.names.pop(GUEST)
    for target in (emulator(), vcpu(0)):
        host.add(target, "0-7")
    restart_host(host, journal)
    assert {entry.state for entry in journal.entries("run-1")} == {"gone"}
    host.writes.clear()
    roll_back(host, journal, "", boot="boot-2")
    assert host.writes == []


def test_a_rollback_of_the_second_run_leaves_the_pins_of_the_first(host, journal):
    save_after_two_runs(host, journal)
    assert roll_back(host, journal, "run-2").state == "rolled_back"
    assert image(host) == ((EMULATOR, VCPU), (EMULATOR, VCPU))
    assert roll_back(host, journal, "run-1", name="back-2").state == "rolled_back"
    assert image(host) == ((BEFORE,), ())


def test_a_rollback_of_all_runs_takes_the_pins_of_all(host, journal):
    save_after_two_runs(host, journal)
    assert roll_back(host, journal, "").state == "rolled_back"
    assert image(host) == ((BEFORE,), ())


@pytest.mark.parametrize("pins", [(BEFORE,), (EMULATOR, BEFORE), (EMULATOR, VCPU)], ids=["none", "one", "all"])
def test_a_recovery_forward_leaves_no_pin_of_an_interrupted_run_in_the_image(host, journal, pins):
    """``pins``: those that the run had made are among them."""
    leave(host, journal, "run-1", host.change(emulator(), "0"), host.change(vcpu(0), "4-7"))
    host.save(GUEST, *pins)
    run = recover(host, journal, "forward", lambda: NOON, "boot-1")
    assert (run.state, run.error) == ("undone", "guest g1 metadata: the guest was saved meanwhile")
    assert image(host) == ((BEFORE,), ())


def test_a_guest_that_is_saved_while_it_is_pinned_has_its_earlier_pins_in_the_image(host, journal):
    def save(write):
        if write[0] == str(vcpu(0)):
            host.before_write = lambda _: None
            host.save(GUEST, EMULATOR, VCPU)

    host.before_write = save
    run = apply(host, journal)
    assert (run.state, run.error) == ("undone", "guest g1 vcpu 0: the guest was saved meanwhile")
    assert image(host) == ((BEFORE,), ())


def test_a_run_that_was_killed_before_its_pin_leaves_the_name_of_the_pin_in_the_image(host, journal):
    """The host restarts before the recovery, and the guest starts from its image, with the pins of the first run."""
    apply(host, journal)
    host.live_pins[GUEST] = (EMULATOR, VCPU)
    leave(host, journal, "run-2", host.change(vcpu(0), "5"), persist=True)
    host.save(GUEST, EMULATOR, VCPU)
    restart_host(host, journal)
    start(host)
    assert recover(host, journal, "back", lambda: NOON, "boot-2").state == "undone"
    assert (host.names[GUEST], host.defined_names) == ((EMULATOR, VCPU), {})
    assert roll_back(host, journal, boot="boot-2").state == "rolled_back"
    assert {str(each.cpus) for each in host.threads[emulator()]} == {"0-7"}
    assert [str(each.cpus) for each in host.threads[vcpu(0)]] == ["0-3"]
    assert host.names == {}


def test_an_image_that_libvirt_does_not_change_is_stuck_and_the_rollback_can_be_repeated(host, journal):
    apply(host, journal)
    host.save(GUEST, EMULATOR, VCPU)

    def refuse(write):
        if write[0].startswith("saved image"):
            raise ApplyFailed("guest g1 metadata", "libvirt: no space left on device")

    host.before_write = refuse
    run = roll_back(host, journal)
    assert run.state == "rolled_back_partly"
    assert "no space left" in run.error
    host.before_write = lambda _: None
    assert roll_back(host, journal, name="back-2").state == "rolled_back"
    assert image(host) == ((BEFORE,), ())


def test_a_rollback_of_all_runs_can_be_repeated_after_a_restart_of_the_host(host, journal):
    apply(host, journal)
    host.save(GUEST, EMULATOR, VCPU)
    restart_host(host, journal)

    def refuse(write):
        if write[0].startswith("saved image"):
            raise ApplyFailed("guest g1 metadata", "libvirt: no space left on device")

    host.before_write = refuse
    assert roll_back(host, journal, "", boot="boot-2").state == "rolled_back_partly"
    host.before_write = lambda _: None
    assert roll_back(host, journal, "", name="back-2", boot="boot-2").state == "rolled_back"
    assert image(host) == ((BEFORE,), ())


def test_the_run_of_a_saved_guest_is_kept_also_after_a_restart_of_the_host(host, journal):
    apply(host, journal)
    host.save(GUEST, EMULATOR, VCPU)
    run = journal.run("run-1")
    assert can_be_undone(run, journal.entries("run-1"), host, "boot-1")
    restart_host(host, journal)
    assert can_be_undone(run, journal.entries("run-1"), host, "boot-2")
    roll_back(host, journal, boot="boot-2")
    assert not can_be_undone(run, journal.entries("run-1"), host, "boot-2")


def test_a_guest_about_which_libvirt_does_not_answer_keeps_its_changes(host, journal, monkeypatch):
    apply(host, journal)

    def busy(_guest):
        raise Busy("guest g1", "no answer", overdue=True)

    monkeypatch.setattr(host, "named_pins", busy)
    restart_host(host, journal)
    assert {entry.state for entry in journal.entries("run-1")} == {"done"}
