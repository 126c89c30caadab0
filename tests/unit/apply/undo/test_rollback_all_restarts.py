"""A rollback of all runs after a restart of the host, of a guest, or after another rollback."""

from dataclasses import replace

import pytest
from support.fakes.in_memory_host import InMemoryHost, daemon, emulator, vcpu
from support.values import MEMBER, NOON, cpus, isolated, make_run

from pinner.apply import executor, recover
from pinner.apply.steps.metadata import keeps_pins
from pinner.model.change import StateChange, Target
from pinner.model.errors import ApplyFailed
from pinner.model.run.journal import Run
from pinner.store.journal.journal import StoredJournal

SCOPE = Target("partition", "machine.slice/g1.scope", None, "g1.scope")


@pytest.fixture
def host():
    host = InMemoryHost()
    host.add(emulator(), "0-7", "0-3")
    host.add(vcpu(0), "0-7")
    host.add(daemon(300), "0-7", "2-5")
    host.states[SCOPE] = MEMBER
    host.definitions["uuid-g1"] = "<cputune/>"
    return host


def apply(host: InMemoryHost, journal, name: str, *changes, **run: object) -> Run:
    values = {"boot": "boot-1"} | run
    return executor.apply(
        host.plan(*changes), make_run(name, **values), host, journal, lambda: NOON, lambda entry, total: None
    )


def rollback_all(host: InMemoryHost, journal, name: str = "all", boot: str = "boot-2") -> Run:
    run = make_run(name, kind="rollback", plan="", boot=boot)
    return executor.rollback(run, host, journal, lambda: NOON, lambda entry, total: None)


def restart_host(host: InMemoryHost, journal, boot: str = "boot-2") -> None:
    """The agent of the new boot has started. All threads have the ids and start times of the boot before."""
    host.boot = boot
    journal.end_earlier_boots(boot, NOON, lambda guest: keeps_pins(guest, host))
    host.writes.clear()


def restart_guest(host: InMemoryHost, target: Target, mask: str, started: int = 50) -> None:
    host.threads[target] = [replace(each, started=started, cpus=cpus(mask)) for each in host.threads[target]]


@pytest.mark.fault(55, 59)
def test_processes_of_an_earlier_boot_pass_for_no_present_ones(host, journal):
    """They were placed by a run that wrote definitions, too."""
    apply(host, journal, "r1", host.change(daemon(300), "0"), host.change(vcpu(0), "4"), persist=True)
    restart_guest(host, vcpu(0), "4")
    restart_host(host, journal)
    run = rollback_all(host, journal)
    assert (run.state, run.error) == ("rolled_back", "")
    assert {host.kernel()[tid] for tid in (300, 301)} == {"0"}, "another process, which has the placed one's id"
    assert (host.kernel()[200], host.definitions["uuid-g1"]) == ("0-7", "<cputune/>")
    assert journal.run("r1").state == "rolled_back"


@pytest.mark.fault(55, 59)
def test_a_state_of_an_earlier_boot_stays_as_somebody_has_set_it_since(host, journal):
    isolate = StateChange(SCOPE, MEMBER, isolated("4-5"), "so")
    apply(host, journal, "r1", isolate, host.change(vcpu(0), "4"), persist=True)
    restart_host(host, journal)
    host.states[SCOPE] = isolated("4-5")
    assert rollback_all(host, journal).state == "rolled_back"
    assert host.states[SCOPE] == isolated("4-5")


@pytest.mark.fault(55, 59)
@pytest.mark.parametrize("mask", ["2", "4"])
def test_a_guests_thread_of_an_earlier_boot_passes_for_no_present_one(host, journal, mask):
    """The new vCPU has the id and start time of the one before; another program has moved it to 2."""
    apply(host, journal, "r1", host.change(vcpu(0), "4"), persist=True)
    restart_host(host, journal)
    host.move(200, mask)
    assert rollback_all(host, journal).state == "rolled_back"
    assert host.kernel()[200] == ("2" if mask == "2" else "0-7")
    assert host.definitions["uuid-g1"] == "<cputune/>"


@pytest.mark.fault(55, 59)
def test_a_guest_that_was_placed_in_two_boots_gets_what_it_had_before_the_first(host, journal):
    apply(host, journal, "r1", host.change(vcpu(0), "4"), persist=True)
    restart_guest(host, vcpu(0), "4")
    restart_host(host, journal)
    apply(host, journal, "r2", host.change(vcpu(0), "5"), boot="boot-2")
    assert rollback_all(host, journal).state == "rolled_back"
    assert (host.kernel()[200], host.definitions["uuid-g1"]) == ("0-7", "<cputune/>")


@pytest.mark.fault(50, 59)
def test_a_vcpu_that_inherited_a_mask_from_a_definition_of_an_earlier_boot(host, journal):
    host.clock = 1000
    apply(host, journal, "r1", host.change(emulator(), "1"), persist=True)
    restart_guest(host, emulator(), "1")
    restart_host(host, journal)
    host.clock = 100
    host.add(vcpu(1), "1")
    restart_guest(host, vcpu(1), "1", started=60)
    apply(host, journal, "r2", host.change(vcpu(1), "5"), boot="boot-2")
    assert rollback_all(host, journal).state == "rolled_back"
    assert [str(each.cpus) for each in host.threads[vcpu(1)]] == ["0-7"]


@pytest.mark.fault(59)
def test_a_definition_that_was_restored_is_not_restored_again(host, journal):
    """The guest was shut off at the first rollback; its operator has pinned it since."""
    apply(host, journal, "r1", host.change(vcpu(0), "4"), persist=True)
    del host.threads[vcpu(0)]
    assert rollback_all(host, journal, boot="boot-1").state == "rolled_back"
    assert host.definitions["uuid-g1"] == "<cputune/>"
    host.definitions["uuid-g1"] = "[vcpu 0: 3]"
    assert rollback_all(host, journal, "again", "boot-1").state == "rolled_back"
    assert host.definitions["uuid-g1"] == "[vcpu 0: 3]"
    assert journal.entries("again") == ()


@pytest.mark.fault(59)
def test_what_a_first_rollback_could_not_restore_is_in_force_only_until_a_second_one_has(host, journal):
    apply(host, journal, "r1", host.change(daemon(300), "0"), host.change(vcpu(0), "4"))

    def refuse(write):
        if write[0] in ("guest g1 vcpu 0", "300"):
            raise ApplyFailed(write[0], "CPUs 7 are not online")

    host.before_write = refuse
    assert rollback_all(host, journal, boot="boot-1").state == "rolled_back_partly"
    assert journal.changes_of("uuid-g1") != ()
    host.before_write = lambda write: None
    assert rollback_all(host, journal, "again", "boot-1").state == "rolled_back"
    assert (journal.placed(), journal.moved_processes(), journal.allocated()) == ((), frozenset(), cpus(""))
    assert (journal.changes_of("uuid-g1"), journal.placed_processes()) == ((), {})


@pytest.mark.fault(55, 59)
def test_a_rollback_that_died_is_made_by_recovery_after_a_restart(host, journal):
    apply(host, journal, "r1", host.change(daemon(300), "0"), host.change(vcpu(0), "4"), persist=True)
    run = make_run("all", kind="rollback", plan="", boot="boot-1")
    journal.begin(run)
    journal.leave(run)
    restart_guest(host, vcpu(0), "4")
    ended = recover.recover(host, journal, "back", lambda: NOON, "boot-2")
    assert (ended.state, host.kernel()[200], host.definitions["uuid-g1"]) == ("rolled_back", "0-7", "<cputune/>")
    assert host.kernel()[300] == "0"


def test_a_repeated_rollback_of_one_run_leaves_a_definition_that_was_restored(host, journal):
    apply(host, journal, "r1", host.change(daemon(300), "0"), host.change(vcpu(0), "4"), persist=True)
    del host.threads[vcpu(0)]
    run = make_run("back", kind="rollback", undoes="r1", boot="boot-1")
    assert executor.rollback(run, host, journal, lambda: NOON, lambda *_: None).state == "rolled_back_partly"
    host.definitions["uuid-g1"] = "[vcpu 0: 3]"
    executor.rollback(replace(run, id="again"), host, journal, lambda: NOON, lambda *_: None)
    assert host.definitions["uuid-g1"] == "[vcpu 0: 3]"


@pytest.mark.fault(55, 59)
def test_the_centre_closes_the_changes_of_an_earlier_boot_too(host, journal, tmp_path):
    """Only the agent has noted at its start that they are gone."""
    apply(host, journal, "r1", host.change(daemon(300), "0"), host.change(vcpu(0), "4"))
    (tmp_path / "centre").mkdir()
    centre = StoredJournal(tmp_path / "centre")
    centre.begin(replace(journal.run("r1"), state="running"))
    centre.intend(*journal.entries("r1"))
    centre.end(journal.run("r1"))
    restart_host(host, journal)
    rollback_all(host, journal)
    centre.begin(replace(journal.run("all"), state="running"))
    centre.end(journal.run("all"))
    assert (centre.run("r1").state, journal.run("r1").state) == ("rolled_back", "rolled_back")
    assert [entry.state for entry in centre.entries("r1")] == ["gone", "gone"]
    centre.close()
