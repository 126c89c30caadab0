"""Records of the journal that cannot be read: the changes of all others are undone, and the damaged ones are named."""

import pytest
from sqlalchemy import text
from support.fakes.in_memory_host import InMemoryHost, daemon, emulator, vcpu
from support.values import MEMBER, NOON, cpus, isolated, make_run

from pinner.apply import executor
from pinner.apply.notes import NAMED, unreadable
from pinner.apply.ports import Admission
from pinner.apply.recover import recover
from pinner.apply.undo import all_runs
from pinner.model.change import StateChange, Target
from pinner.model.errors import StoreUnavailable
from pinner.model.machine.interrupts import DeviceIrq
from pinner.model.run.journal import Damaged
from pinner.model.settings.cards import RxRing
from pinner.model.states import Number
from pinner.store.database.engine import writing

pytestmark = pytest.mark.fault(58)

SCOPE = Target("partition", "machine.slice/g1.scope", None, "g1.scope")
IRQ = DeviceIrq(24, "ens1-rx-0", "0000:3b:00.0", cpus("0-7")).target
RING = RxRing("ens1", 2, 256, 4096, has_dropped=True).target
DAMAGES = {
    "half a text": "change = '{\"kind\":'",
    "an unknown kind": 'change = replace(change, \'"kind":"affinity"\', \'"kind":"magic"\')',
    "a text that is not UTF-8": "change = CAST(x'7b80' AS TEXT)",
    "a wrong time": "at = 'yesterday'",
    "wrong threads": "found = '7'",
}


@pytest.fixture
def host():
    host = InMemoryHost()
    host.add(emulator(), "0-7", "0-3")
    host.add(vcpu(0), "0-7")
    host.add(daemon(300), "0-7", "2-5")
    return host


def apply(host, journal, name, *changes, **run):
    plan = host.plan(*changes)
    ended_run = executor.apply(plan, make_run(name, **run), host, journal, lambda: NOON, lambda entry, total: None)
    assert ended_run.state == "applied"


def rollback_all(host, journal, name="all", boot=""):
    run = make_run(name, kind="rollback", plan="", boot=boot)
    return executor.rollback(run, host, journal, lambda: NOON, lambda entry, total: None)


def damage(journal, run, how, seq=1):
    with writing(journal._engine) as connection:
        connection.execute(text(f"UPDATE entries SET {how} WHERE run = '{run}' AND seq = {seq}"))


def masks(host, target):
    return [str(thread.cpus) for thread in host.threads[target]]


@pytest.mark.parametrize("how", DAMAGES.values(), ids=DAMAGES)
def test_a_rollback_of_all_runs_undoes_all_other_changes_and_names_the_damaged_one(host, journal, how):
    apply(host, journal, "r1", host.change(daemon(300), "0"), host.change(emulator(), "1"))
    apply(host, journal, "r2", host.change(vcpu(0), "4"))
    damage(journal, "r1", how)
    run = rollback_all(host, journal)
    assert run.state == "rolled_back_partly"
    assert "change 1 of run r1 (process busyd (300) on CPUs 0)" in run.error
    assert "a stored value is damaged" in run.error
    assert "pinner-manage db set-aside" in run.error
    assert (masks(host, vcpu(0)), masks(host, emulator())) == (["0-7"], ["0-7", "0-3"])
    assert masks(host, daemon(300)) == ["0", "0"]
    assert [journal.run(name).state for name in ("r1", "r2")] == ["rolled_back_partly", "rolled_back"]
    assert [str(cpus) for cpus in journal.placed()] == ["0"]


def test_it_can_be_repeated_and_succeeds_once_the_record_is_sound_again(host, journal):
    apply(host, journal, "r1", host.change(daemon(300), "0"))
    damage(journal, "r1", "change = change || '}'")
    for name in ("first", "second"):
        assert rollback_all(host, journal, name).state == "rolled_back_partly"
    damage(journal, "r1", "change = substr(change, 1, length(change) - 1)")
    assert rollback_all(host, journal, "third").state == "rolled_back"
    assert masks(host, daemon(300)) == ["0-7", "2-5"]


def test_a_target_with_a_sound_first_record_gets_its_first_masks_and_stays_named(host, journal):
    apply(host, journal, "r1", host.change(daemon(300), "0"))
    apply(host, journal, "r2", host.change(daemon(300), "1"))
    damage(journal, "r2", DAMAGES["half a text"])
    run = rollback_all(host, journal)
    assert (run.state, masks(host, daemon(300))) == ("rolled_back_partly", ["0-7", "2-5"])
    assert [entry.state for entry in journal.entries("all")] == ["stuck"]
    assert [journal.run(name).state for name in ("r1", "r2")] == ["rolled_back_partly"] * 2


def test_a_target_whose_first_record_is_damaged_is_no_success(host, journal):
    """The masks that the second run found are pinner's own."""
    apply(host, journal, "r1", host.change(daemon(300), "0"))
    apply(host, journal, "r2", host.change(daemon(300), "1"))
    damage(journal, "r1", DAMAGES["half a text"])
    run = rollback_all(host, journal)
    assert run.state == "rolled_back_partly"
    assert [journal.run(name).state for name in ("r1", "r2")] == ["rolled_back_partly"] * 2
    assert [entry.state for entry in journal.entries("r2")] == ["stuck"]


@pytest.mark.parametrize(
    ("target", "states"),
    [
        (SCOPE, (MEMBER, isolated("4-5"), isolated("4-7"))),
        (IRQ, (cpus("0-7"), cpus("0"), cpus("1"))),
        (RING, (Number(256), Number(512), Number(4096))),
    ],
    ids=["partition", "irq", "ring"],
)
def test_after_a_damaged_record_of_a_state_no_state_counts_as_restored(host, journal, target, states):
    host.states[target] = states[0]
    apply(host, journal, "r1", StateChange(target, states[0], states[1], "so"))
    apply(host, journal, "r2", StateChange(target, states[1], states[2], "so"))
    damage(journal, "r1", DAMAGES["half a text"])
    run = rollback_all(host, journal)
    assert run.state == "rolled_back_partly"
    assert "change 1 of run r1 (a partition, work queues, a setting or memory)" in run.error
    assert host.states[target] == states[1]
    assert [entry.state for entry in journal.entries("all")] == ["stuck"]
    assert journal.run("r2").state == "rolled_back_partly"


def test_processes_with_inheritors_are_restored_beside_a_damaged_process(host, journal):
    host.add(daemon(500, "other"), "0-7")
    apply(host, journal, "r1", host.change(daemon(300), "0"), host.change(daemon(500, "other"), "0"))
    child = host.fork(daemon(500, "other"), 900)
    damage(journal, "r1", DAMAGES["half a text"])
    run = rollback_all(host, journal)
    assert [entry.state for entry in journal.entries("all")] == ["undone"], run.error
    assert masks(host, child) == ["0-7"]


def test_a_damaged_change_of_threads_from_an_earlier_boot_has_ended_with_them(host, journal):
    apply(host, journal, "r1", host.change(daemon(300), "0"), boot="old")
    apply(host, journal, "r2", host.change(vcpu(0), "4"), boot="new")
    damage(journal, "r1", DAMAGES["half a text"])
    assert rollback_all(host, journal, boot="new").state == "rolled_back"
    assert journal.run("r1").state == "rolled_back"
    assert journal.placed() == ()


def test_a_damaged_record_does_not_stop_the_agent_after_a_restart_of_the_host(host, journal):
    """The guest of damaged metadata is not known, so these names stay in force: the guest may be a saved one."""
    host.has_metadata = True
    apply(host, journal, "r1", host.change(daemon(300), "0"), host.change(vcpu(0), "4"), boot="old")
    names = next(each.seq for each in journal.entries("r1") if each.change.kind == "metadata")
    damage(journal, "r1", DAMAGES["half a text"], names)
    assert journal.end_earlier_boots("new", NOON, lambda guest: False) == 2
    assert journal.placed() == ()
    run = rollback_all(host, journal, boot="new")
    assert (run.state, f"change {names} of run r1 (the metadata of a guest)" in run.error) == (
        "rolled_back_partly",
        True,
    )


@pytest.mark.parametrize("policy", ["back", "forward"])
def test_recovery_undoes_the_sound_changes_of_an_interrupted_run(host, journal, policy):
    before = {target: masks(host, target) for target in host.threads}

    def killed(write):
        if write[0] == "guest g1 vcpu 0":
            raise KeyboardInterrupt

    host.before_write = killed
    run = make_run("r1", all_or_nothing=True)
    changes = (host.change(emulator(), "1"), host.change(daemon(300), "0"), host.change(vcpu(0), "4"))
    journal.begin(run)
    journal.intend(*executor._intents(changes, run, host, NOON, Admission(host.plan(*changes))))
    for target in (emulator(), daemon(300)):
        for thread in host.threads[target]:
            host.move(thread.tid, "1" if target == emulator() else "0")
    host.before_write = lambda write: None
    journal.leave(run)
    damage(journal, "r1", DAMAGES["half a text"], seq=2)
    recovered = recover(host, journal, policy, lambda: NOON)
    assert recovered is not None
    assert recovered.state == "failed"
    assert "change 2 of run r1 (process busyd (300) on CPUs 0)" in recovered.error
    assert masks(host, emulator()) == before[emulator()]
    assert masks(host, daemon(300)) == ["0", "0"]
    assert journal.interrupted() is None


def test_an_interrupted_rollback_of_all_runs_names_the_damaged_record_too(host, journal):
    apply(host, journal, "r1", host.change(daemon(300), "0"))
    apply(host, journal, "r2", host.change(vcpu(0), "4"))
    damage(journal, "r1", DAMAGES["half a text"])

    def die(write):
        raise KeyboardInterrupt

    host.before_write = die
    with pytest.raises(KeyboardInterrupt):
        rollback_all(host, journal)
    host.before_write = lambda write: None
    recovered = recover(host, journal, "back", lambda: NOON)
    assert recovered is not None
    assert recovered.state == "rolled_back_partly"
    assert "change 1 of run r1" in recovered.error
    assert masks(host, vcpu(0)) == ["0-7"]


def test_a_damaged_run_is_kept_by_the_retention_and_others_are_deleted(host, journal):
    apply(host, journal, "r1", host.change(daemon(300), "0"))
    apply(host, journal, "r2", host.change(vcpu(0), "4"))
    damage(journal, "r1", DAMAGES["half a text"])
    del host.threads[vcpu(0)]
    later = NOON.replace(year=NOON.year + 1)
    assert all_runs.purge(journal, later, host, make_run("x").host) == 1
    assert journal.run("r1").state == "applied"


def test_the_rollback_of_one_run_with_a_damaged_record_is_refused_before_it_changes_the_host(host, journal):
    apply(host, journal, "r1", host.change(daemon(300), "0"), host.change(vcpu(0), "4"))
    damage(journal, "r1", DAMAGES["half a text"])
    run = make_run("back", kind="rollback", undoes="r1")
    with pytest.raises(StoreUnavailable, match="a stored value is damaged"):
        executor.rollback(run, host, journal, lambda: NOON, lambda entry, total: None)
    assert masks(host, vcpu(0)) == ["4"]


@pytest.mark.parametrize(("count", "more"), [(NAMED, ""), (NAMED + 1, " and 1 more")])
def test_the_error_names_so_many_damaged_records_and_counts_the_others(count, more):
    error = unreadable([Damaged("r1", seq, "it is damaged") for seq in range(count)])
    assert error.endswith(f"memory){more}; it is damaged")
    assert error.count("run r1") == NAMED
