"""Runs name the pins that they make in the guest's metadata, and an undo restores the names exactly."""

import pytest
from support.fakes.in_memory_host import InMemoryHost, daemon, emulator, vcpu, vhost
from support.values import NOON, cpus, make_run

from pinner.apply import executor
from pinner.apply.recover import recover
from pinner.model.change import PartPin
from pinner.model.errors import ApplyFailed

pytestmark = pytest.mark.fault(76)

EMULATOR = PartPin("emulator", None, cpus("0"))
VCPU = PartPin("vcpu", 0, cpus("4-7"))
OTHER = PartPin("vcpu", 1, cpus("6"))


@pytest.fixture
def host():
    host = InMemoryHost()
    host.has_metadata = True
    for guest in ("g1", "g2"):
        host.add(emulator(guest), "0-7", "0-7")
        host.add(vcpu(0, guest), "0-7")
        host.definitions[f"uuid-{guest}"] = "<cputune/>"
    host.add(daemon(400), "0-7")
    return host


def plan(host, *guests, process=True, **after):
    wanted = after or {"emulator": "0", "vcpu": "4-7"}
    changes = [
        host.change(emulator(guest) if kind == "emulator" else vcpu(0, guest), mask)
        for kind, mask in wanted.items()
        for guest in guests or ("g1", "g2")
    ]
    return host.plan(*([host.change(daemon(400), "1")] if process else []), *changes)


def apply(plan, host, journal, name="run-1", **run):
    return executor.apply(plan, make_run(name, **run), host, journal, lambda: NOON, lambda *_: None)


def roll_back(host, journal, undoes="run-1", name="back", **run):
    undo = make_run(name, kind="rollback", undoes=undoes, **run)
    return executor.rollback(undo, host, journal, lambda: NOON, lambda *_: None)


def names(host, guest="g1"):
    return host.names.get(f"uuid-{guest}", ()), host.defined_names.get(f"uuid-{guest}", ())


def metadata_writes(host):
    return [target for target, _ in host.writes if target.endswith("metadata")]


@pytest.mark.parametrize("persist", [False, True])
def test_each_guest_gets_its_names_in_one_write_before_its_pins(host, journal, persist):
    host.before_write = lambda write: order.append((write[0], journal.entries("run-1")[0].run))
    order = []
    assert apply(plan(host), host, journal, persist=persist).state == "applied"
    for guest in ("g1", "g2"):
        assert names(host, guest) == ((EMULATOR, VCPU), (EMULATOR, VCPU) if persist else ())
        own = [target for target, _ in host.writes if target.startswith(f"guest {guest}")]
        assert own == [f"guest {guest} metadata", f"guest {guest} emulator", f"guest {guest} vcpu 0"]
    entries = journal.entries("run-1")
    assert [entry.state for entry in entries] == ["done"] * 7
    assert [entry.change.kind for entry in entries].count("metadata") == 2
    assert all(run == "run-1" for _, run in order)  # each intent was in the journal before the write


@pytest.mark.parametrize("persist", [False, True])
@pytest.mark.parametrize("everything", [False, True])
def test_a_rollback_restores_the_names(host, journal, persist, everything):
    former = (PartPin("vcpu", 0, cpus("1")), OTHER)
    host.names["uuid-g1"], host.defined_names["uuid-g1"] = former, (OTHER,)
    apply(plan(host), host, journal, persist=persist)
    assert names(host)[0] == (EMULATOR, VCPU, OTHER)
    assert roll_back(host, journal, "" if everything else "run-1").state == "rolled_back"
    assert names(host) == (former, (OTHER,))
    assert names(host, "g2") == ((), ())


def test_of_two_runs_each_can_be_rolled_back_first(host, journal):
    apply(plan(host, "g1", emulator="0"), host, journal, persist=True)
    apply(plan(host, "g1", process=False, vcpu="4-7"), host, journal, "run-2")
    assert names(host) == ((EMULATOR, VCPU), (EMULATOR,))
    assert roll_back(host, journal).state == "rolled_back"
    assert names(host) == ((VCPU,), ())
    assert roll_back(host, journal, "run-2", "back-2").state == "rolled_back"
    assert names(host) == ((), ())


def test_a_rollback_of_all_runs_restores_the_names_from_before_the_first(host, journal):
    host.names["uuid-g1"] = (OTHER,)
    apply(plan(host, "g1", vcpu="4-7"), host, journal)
    apply(plan(host, "g1", emulator="0", vcpu="3"), host, journal, "run-2", persist=True)
    apply(plan(host, "g1", vcpu="2"), host, journal, "run-3")
    assert names(host)[1] == (EMULATOR, PartPin("vcpu", 0, cpus("3")))
    assert roll_back(host, journal, "").state == "rolled_back"
    assert names(host) == ((OTHER,), ())


@pytest.mark.parametrize("everything", [False, True])
def test_of_an_earlier_boot_the_names_of_the_definition_are_restored(host, journal, everything):
    apply(plan(host, "g1"), host, journal, persist=True, boot="first")
    before = names(host)
    assert before[0] == before[1] != ()  # the guest was started from its definition
    host.boot = "second"
    roll_back(host, journal, "" if everything else "run-1", boot="second")
    assert names(host) == ((), ())


def test_a_live_run_of_an_earlier_boot_leaves_nothing_to_restore(host, journal):
    apply(plan(host, "g1"), host, journal, boot="first")
    host.names.clear()
    host.boot = "second"
    roll_back(host, journal, boot="second")
    assert metadata_writes(host) == ["guest g1 metadata"]


def test_a_guest_that_fails_keeps_its_former_names_and_the_other_gets_its_own(host, journal):
    def refuse(write):
        if write == ("guest g1 vcpu 0", "4-7"):
            raise ApplyFailed(write[0], "refused")

    host.before_write = refuse
    assert apply(plan(host), host, journal, persist=True).state == "applied_partly"
    assert names(host) == ((), ())
    assert names(host, "g2") == ((EMULATOR, VCPU),) * 2


def test_metadata_that_libvirt_refuses_fails_its_guest_alone(host, journal):
    def refuse(write):
        if write[0] == "guest g1 metadata" and write[1] != "-":
            raise ApplyFailed(write[0], "refused")

    host.before_write = refuse
    run = apply(plan(host), host, journal)
    assert (run.state, names(host)) == ("applied_partly", ((), ()))
    assert run.error == "1 of 3 guests and processes are not placed: guest g1 metadata: refused"
    assert not [target for target, _ in host.writes if target.startswith("guest g1 ") and "metadata" not in target]


def test_metadata_that_libvirt_does_not_store_fails_its_guest(host, journal):
    host.name_pins = lambda *_: None
    run = apply(plan(host, "g1"), host, journal)
    assert run.state == "applied_partly"
    assert "libvirt has not stored the names: - instead of emulator: 0; vcpu 0: 4-7" in run.error


def test_names_that_another_program_changed_since_the_run_began_fail_the_guest(host, journal):
    def change(write):
        host.names["uuid-g1"] = (OTHER,)

    host.before_write = change
    run = apply(plan(host, "g1"), host, journal)
    assert run.error.endswith("guest g1 metadata: another program changed it just now: it names vcpu 1: 6")
    assert names(host) == ((OTHER,), ())


def test_a_guest_that_has_ended_gets_no_names(host, journal):
    made = plan(host, "g1")

    def end(write):
        host.threads = {target: [] if target.owner == "uuid-g1" else own for target, own in host.threads.items()}
        host.definitions.pop("uuid-g1", None)

    host.before_write = end
    assert apply(made, host, journal).state == "applied"
    assert [entry.state for entry in journal.entries("run-1")] == ["done", "gone", "gone", "gone"]
    assert roll_back(host, journal).state == "rolled_back"


def test_a_vcpu_that_is_unplugged_during_the_run_leaves_the_others_named(host, journal):
    def unplug(write):
        if write[0] == "guest g1 emulator":
            host.threads[vcpu(0)] = []

    host.before_write = unplug
    assert apply(plan(host, "g1"), host, journal).state == "applied"
    assert EMULATOR in names(host)[0]
    roll_back(host, journal)
    assert names(host) == ((), ())


def test_a_guest_that_only_its_vhost_threads_place_gets_no_metadata(host, journal):
    host.add(vhost(900), "0-7")
    apply(host.plan(host.change(vhost(900), "0")), host, journal)
    assert metadata_writes(host) == []


@pytest.mark.parametrize("policy", ["back", "forward"])
def test_an_interrupted_run_is_recovered_with_its_names(host, journal, policy):
    class Killed(BaseException):
        pass

    def kill(write):
        if write == ("guest g2 vcpu 0", "4-7"):
            raise Killed

    host.before_write = kill
    journal.end, end = (lambda *_: (_ for _ in ()).throw(Killed)), journal.end
    undo = executor.Transaction._undo_groups
    try:
        executor.Transaction._undo_groups = lambda *_: (_ for _ in ()).throw(Killed)
        with pytest.raises(Killed):
            apply(plan(host), host, journal, persist=True)
    finally:
        executor.Transaction._undo_groups, journal.end = undo, end
    host.before_write = lambda write: None
    journal._notes.clear()  # they died with the process
    done = recover(host, journal, policy, lambda: NOON)
    expected = ((EMULATOR, VCPU),) * 2 if policy == "forward" else ((), ())
    assert (done.state, names(host), names(host, "g2")) == (
        "applied" if policy == "forward" else "undone",
        expected,
        expected,
    )


def test_the_name_of_a_pin_that_was_not_made_is_no_placement(host, journal):
    """g1 ends after its metadata is written, and g2 does not answer: no guest is placed."""
    made = plan(host, process=False)

    def end_g1(write):
        if write[0] == "guest g1 emulator":
            for target in (emulator("g1"), vcpu(0, "g1")):
                host.threads.pop(target, None)

    host.before_write = end_g1
    host.occupied = {"uuid-g2"}
    run = apply(made, host, journal)
    states = [
        (entry.change.kind, entry.state) for entry in journal.entries("run-1") if entry.change.target.name == "g1"
    ]
    assert (run.state, states) == ("undone", [("metadata", "done"), ("affinity", "gone"), ("affinity", "gone")])
