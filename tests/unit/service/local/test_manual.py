"""A placement by hand through the service: applied, recorded, audited, under a policy, and undone."""

from contextlib import closing
from dataclasses import replace

import pytest
from data.field.documented import FIFTH, FOURTH, PIDS, documented_host, pin
from support.fakes.hosted_agent import HostedAgent
from support.fakes.local_service import ANN, compose_service, finish, trail
from support.hosts import cpus, guest, plain, snapshot
from support.values import NOON

from pinner import codec
from pinner.host.virt.guests import without_recorded_pins
from pinner.model.change import PartPin
from pinner.model.errors import PolicyConflict, Refused, StalePlan
from pinner.model.guest.guest import Guest, OperatorPin
from pinner.model.plan.request import Request
from pinner.model.policy import MAX_DELAY, Policy
from pinner.model.run.journal import ApplyOptions


@pytest.fixture
def agent(tmp_path, clock):
    made = HostedAgent(tmp_path / "agent", replace(documented_host(), host="h1"), clock)
    made.host.has_metadata = True
    yield made
    made.journal.close()


@pytest.fixture
def parts(store, agent, clock):
    with closing(compose_service(agent, store, clock)) as made:
        yield made


@pytest.fixture
def service(parts):
    return parts.service


def place(service, *pins):
    made = service.plan("h1", Request(placement=pins), None, 0.0, ANN)
    run = service.apply(made.id, ApplyOptions(), ANN)
    finish(service, run)
    return made, service.run(run.id)


def roll_back(service, run):
    undo = service.rollback(run.id, ANN)
    finish(service, undo)
    return service.run(undo.id)


@pytest.mark.parametrize("pins", [FOURTH, FIFTH], ids=["stage 4", "stage 5"])
def test_a_stage_of_the_documented_case_is_applied_and_undone(service, agent, pins):
    before = agent.host.kernel()
    made, run = place(service, *pins)
    assert run.state == "applied"
    planned = {thread.tid: str(change.after) for change in made.changes for thread in change.before}
    assert agent.host.kernel() == before | planned
    assert service.drift("h1").drifts == ()
    assert place(service, *pins)[0].changes == ()
    assert roll_back(service, run).state == "rolled_back"
    assert (agent.host.kernel(), agent.host.names) == (before, {})
    actions = [record.action for record in trail(service, "plan.create", "run.apply", "run.rollback")]
    assert {"plan.create", "run.apply", "run.rollback"} <= set(actions)


def test_drift_from_it_is_found_and_a_policy_corrects_it(service, agent):
    place(service, *FOURTH)
    (vcpu,) = (target for target in agent.host.threads if str(target) == "guest g1 vcpu 0")
    agent.host.move(agent.host.threads[vcpu][0].tid, "0-39")
    assert [(str(each.target), str(each.expected)) for each in service.drift("h1").drifts] == [("guest g1 vcpu 0", "6")]
    service.set_policy("h1", Policy(Request(placement=FOURTH), "enforce"), ANN)
    place(service, *FOURTH)
    assert service.drift("h1").drifts == ()


def test_a_policy_names_the_part_that_cannot_have_its_cpus_and_keeps_the_others(parts, service, agent):
    service.set_policy("h1", Policy(Request(placement=FOURTH), "enforce"), ANN)
    place(service, *FOURTH)
    in_place = agent.host.kernel()
    for part in ("vcpu 1", "emulator"):
        (target,) = (target for target in agent.host.threads if str(target) == f"guest g1 {part}")
        agent.host.move(agent.host.threads[target][0].tid, "0-39")
    pinned = replace(guest(3, 1, cpus("0-39"), pins=("6",)), operator_pins=(OperatorPin("vcpu", 0, cpus("6"), "live"),))
    agent.host.taken = replace(agent.host.taken, guests=(*agent.host.taken.guests, pinned))
    seen = service.drift("h1")
    assert ({str(each.target) for each in seen.drifts}, seen.error) == ({"guest g1 vcpu 1", "guest g1 emulator"}, "")
    assert [str(left.target) for left in seen.unplaced] == ["guest g1 vcpu 0"]
    report = parts.reconciler.reconcile("h1", "resync")
    assert (report.drifts, report.error, report.unplaced) == ((), "", seen.unplaced)
    assert {tid: mask for tid, mask in agent.host.kernel().items() if tid in in_place} == in_place


def test_a_policy_places_a_guest_again_that_was_restarted(parts, service, agent):
    """Its place alone makes the objective worse, but the user named it."""
    pins = (pin("g2", "all", "8,10"),)
    service.set_policy("h1", Policy(Request(placement=pins), "enforce"), ANN)
    place(service, *pins)
    other, before = documented_host().guests
    restarted = codec.load(Guest, codec.dump(before).replace(b'"started":7', b'"started":9'))
    agent.host.taken = replace(agent.host.taken, guests=(other, restarted))
    report = parts.reconciler.reconcile("h1", "guest-started")
    assert (report.drifts, report.error) == ((), "")
    assert {agent.host.kernel()[vcpu.thread.tid] for vcpu in before.vcpus} == {"8,10"}


def test_an_enforced_policy_of_another_request_refuses_it(service):
    service.set_policy("h1", Policy(Request(), "enforce"), ANN)
    with pytest.raises(PolicyConflict):
        place(service, *FOURTH)


@pytest.fixture
def pinned(agent):
    """The host, with a guest whose vCPUs an operator pinned to CPUs 2 and 3."""
    pins = tuple(OperatorPin("vcpu", number, cpus(mask), "live") for number, mask in enumerate("23"))
    one = replace(guest(1, 2, cpus("0-7"), pins=("2", "3")), operator_pins=pins)
    agent.host.taken = replace(snapshot(plain(8), [one]), host="h1")
    agent.host.live_pins[one.uuid] = tuple(PartPin(pin.kind, pin.part, pin.cpus) for pin in pins)
    return agent.host


ADOPTED = (pin("g1", "vcpu", "2", 0), pin("g1", "vcpu", "3", 1))


def test_a_pinned_guest_is_adopted_once_and_given_back(service, pinned):
    before = pinned.kernel()
    made, run = place(service, *ADOPTED)
    entries = service.entries(run.id)
    assert (run.state, [entry.state for entry in entries], len(made.changes)) == ("applied", ["done"] * 3, 2)
    assert pinned.kernel() == before
    (names,) = pinned.names.values()
    assert [(pin.kind, pin.part, str(pin.cpus)) for pin in names] == [("vcpu", 0, "2"), ("vcpu", 1, "3")]
    assert place(service, *ADOPTED)[0].changes == ()
    assert service.plan("h1", Request(), None, 0.0, ANN).skipped == ()
    assert roll_back(service, run).state == "rolled_back"
    assert (pinned.kernel(), pinned.names) == (before, {})


def test_after_all_rollbacks_the_pins_are_their_operators_again(service, agent, pinned):
    before = pinned.kernel()
    _, adopted = place(service, *ADOPTED)
    runs = [
        adopted,
        *(place(service, *pins)[1] for pins in ([pin("g1", "emulator", "0-1")], [pin("g1", "vcpu", "4", 0)])),
    ]
    assert [roll_back(service, run).state for run in reversed(runs)] == ["rolled_back"] * 3
    assert (pinned.kernel(), pinned.names) == (before, {})
    (guest,) = pinned.taken.guests
    recorded = agent.journal.recorded_pins([guest.uuid])
    assert without_recorded_pins(guest, recorded).operator_pins == guest.operator_pins
    assert recorded.has_live(guest.uuid, "emulator", None)


def test_pins_of_an_operator_beside_a_placed_part_stay_their_operators(service, agent, pinned):
    """Nobody else gets their CPUs, and no plan for all guests moves them, until the guest itself is named."""
    place(service, pin("g1", "emulator", "0-1"))
    (one,) = pinned.taken.guests
    own = without_recorded_pins(one, agent.journal.recorded_pins([one.uuid]))
    assert own.operator_pins == one.operator_pins
    assert service.plan("h1", Request(), None, 0.0, ANN).changes == ()
    place(service, pin("g1", "vcpu", "4", 0))
    recorded = agent.journal.recorded_pins([one.uuid])
    assert [recorded.has_live(one.uuid, "vcpu", part) for part in range(2)] == [True, False]
    everything = service.plan("h1", Request(guests=("g1",)), None, 0.0, ANN)
    finish(service, service.apply(everything.id, ApplyOptions(allow_worse=True), ANN))
    assert agent.journal.recorded_pins([one.uuid]).placed == {one.uuid}


def test_an_adoption_of_pins_that_have_changed_is_stale(service, pinned):
    made = service.plan("h1", Request(placement=ADOPTED), None, 0.0, ANN)
    (vcpu,) = (target for target in pinned.threads if str(target) == "guest g1 vcpu 0")
    pinned.move(pinned.threads[vcpu][0].tid, "5")
    with pytest.raises(StalePlan, match="may run on 5, no longer on 2"):
        finish(service, service.apply(made.id, ApplyOptions(), ANN))


def test_a_vcpu_that_is_plugged_in_later_makes_no_placement_of_others_stale(service, agent):
    made = service.plan("h1", Request(placement=FOURTH[1:2]), None, 0.0, ANN)
    host = agent.host.taken
    agent.host.taken = replace(host, guests=(guest(1, 3, cpus("0-39"), memory={0: 8 << 20}), *host.guests[1:]))
    run = service.apply(made.id, ApplyOptions(), ANN)
    finish(service, run)
    assert service.run(run.id).state == "applied"


def test_the_agent_refuses_cpus_that_no_rule_allows(service, agent, store):
    """As a caller might send them in the place of the API."""
    made = service.plan("h1", Request(placement=FOURTH), None, 0.0, ANN)
    *others, last = made.changes
    store.plans.add(forged := replace(made, id="plan-forged", changes=(*others, replace(last, after=cpus("41")))), NOON)
    with pytest.raises(Refused, match="outside the set of its role"):
        finish(service, service.apply(forged.id, ApplyOptions(), ANN))


def started(agent, boot: str, *guests: Guest, start: int) -> None:
    """The host in a boot, with these guests and the time at which their threads have started."""
    text = f'"started":{start}'.encode()
    guests = tuple(codec.load(Guest, codec.dump(each).replace(b'"started":7', text)) for each in guests)
    agent.host.taken = replace(snapshot(plain(8), guests), host="h1", boot=boot)


def place_worse(service, *pins):
    made = service.plan("h1", Request(placement=pins), None, 0.0, ANN)
    assert made.worse
    finish(service, service.apply(made.id, ApplyOptions(allow_worse=True), ANN))


@pytest.mark.parametrize("mode", ["propose", "enforce"])
def test_a_policy_restores_a_worse_placement_after_a_restart_of_the_host(parts, service, agent, mode):
    one, pins = guest(1, 4, cpus("0-7")), (pin("g1", "all", "2"),)
    started(agent, "boot-1", one, start=7)
    service.set_policy("h1", Policy(Request(placement=pins), mode), ANN)
    place_worse(service, *pins)
    started(agent, "boot-2", start=7)
    assert parts.reconciler.reconcile("h1", "started").drifts == ()
    started(agent, "boot-2", one, start=9)
    report = parts.reconciler.reconcile("h1", "guest-started")
    if mode == "propose":
        finish(service, service.apply(report.proposed, ApplyOptions(), ANN))
        report = service.drift("h1")
    assert (report.drifts, report.error) == ((), "")
    assert {agent.host.kernel()[vcpu.thread.tid] for vcpu in one.vcpus} == {"2"}


def test_a_policy_places_a_worse_placement_again_after_a_failure(parts, service, agent, clock):
    one, pins = guest(1, 4, cpus("0-7")), (pin("g1", "all", "2"),)
    started(agent, "boot-1", one, start=7)
    service.set_policy("h1", Policy(Request(placement=pins), "enforce"), ANN)
    place_worse(service, *pins)
    agent.host.failing[one.uuid] = "libvirt does not answer"
    started(agent, "boot-2", one, start=9)
    assert parts.reconciler.reconcile("h1", "started").drifts
    agent.host.failing.clear()
    clock.at += MAX_DELAY
    report = parts.reconciler.reconcile("h1", "resync")
    assert (report.drifts, report.error) == ((), "")


def test_drift_without_a_policy_leaves_a_process_alone_that_got_the_pid_of_a_placed_one(service, agent):
    agent.host.taken = replace(agent.host.taken, boot="boot-1")
    place(service, pin(str(PIDS[0]), "process", "0,2,4"), *FOURTH)
    assert service.drift("h1").drifts == ()
    first, *others = agent.host.taken.processes
    assert first.pid == PIDS[0]
    again = replace(first, name="other", started=first.started + 5, threads=documented_host().processes[0].threads)
    agent.host.taken = replace(agent.host.taken, processes=(again, *others))
    assert service.drift("h1").drifts == ()
    agent.host.taken = replace(documented_host(), host="h1", boot="boot-2", guests=())
    assert service.drift("h1").drifts == ()


def test_drift_from_pids_alone_ends_with_their_processes(service, agent):
    place(service, pin(str(PIDS[0]), "process", "0,2,4"))
    first, *others = agent.host.taken.processes
    agent.host.move(first.pid, "0-39")
    assert [drift.target.owner for drift in service.drift("h1").drifts] == [str(first.pid)]
    agent.host.taken = replace(agent.host.taken, processes=tuple(others))
    report = service.drift("h1")
    assert (report.drifts, report.unplaced, report.error) == ((), (), "")
