"""Targets that drift again and again, and guests that hang, are backed off from alone."""

import uuid
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest
from support.fakes.reconciled_host import (
    ALL,
    ANN,
    ENFORCE,
    FREE,
    HOST,
    PLACED,
    VCPU,
    isolated,
    kernel,
    meddle,
    trail,
)
from support.hosts import KERNEL, guest, plain, process, snapshot
from support.values import MEMBER

from pinner.model.errors import (
    StalePlan,
)
from pinner.model.guest.guest import Cgroup
from pinner.model.page import PageRequest
from pinner.model.plan.request import Request
from pinner.model.policy import BASE_DELAY, FREE_RETRIES, MAX_DELAY, Policy
from pinner.model.run.journal import ApplyOptions
from pinner.service.local import ServiceParts


def test_repeated_drift_is_backed_off_and_recorded(service, reconciler, agent, clock):
    service.set_policy(HOST, ENFORCE, ANN)
    reconciler.reconcile(HOST, "started")
    for _ in range(FREE_RETRIES):
        meddle(agent, VCPU, "9")
        assert reconciler.reconcile(HOST, "guest-changed").drifts == ()
    meddle(agent, VCPU, "9")
    meddle(agent, VCPU + 1, "9")
    runs = len(service.runs(HOST, PageRequest(50)).items)
    (drift,) = reconciler.reconcile(HOST, "guest-changed").drifts
    assert (drift.target.part, drift.times) == (0, FREE_RETRIES)
    assert drift.backoff_until is not None
    assert len(service.runs(HOST, PageRequest(50)).items) == runs + 1, "the other one was put back"
    assert kernel(agent)["CPU 0/KVM"] == "9"
    assert service.drift(HOST).drifts == (drift,)
    (noted,) = trail(service, "drift.backoff")
    assert noted.subject == "guest g1 vcpu 0"
    assert noted.result.endswith(f"skipped until {drift.backoff_until.isoformat(timespec='seconds')}")

    clock.at += BASE_DELAY
    assert reconciler.reconcile(HOST, "resync").drifts == ()
    assert kernel(agent) == PLACED
    meddle(agent, VCPU, "9")
    (again,) = reconciler.reconcile(HOST, "guest-changed").drifts
    assert again.backoff_until - clock.at > BASE_DELAY, "twice as long"


def test_restarts_cause_no_backoff(service, reconciler, agent):
    service.set_policy(HOST, ENFORCE, ANN)
    reconciler.reconcile(HOST, "started")
    for number in range(3 * FREE_RETRIES):
        again = replace(process(900 + number, 0.0, "0-15", name="daemon"), started=77 + number)
        agent.host.taken = replace(agent.host.taken, processes=(again,))
        assert reconciler.reconcile(HOST, "process-started").drifts == ()
    assert kernel(agent)["daemon"] == "0-1"


@pytest.mark.parametrize("mode", ["observe", "propose"])
def test_drift_that_comes_and_goes_does_not_fill_the_audit_trail(service, reconciler, agent, mode):
    service.set_policy(HOST, Policy(mode="enforce"), ANN)
    reconciler.reconcile(HOST, "started")
    service.set_policy(HOST, Policy(mode=mode), ANN)
    for _ in range(20):
        meddle(agent, VCPU, "9")
        (drift,) = reconciler.reconcile(HOST, "guest-changed").drifts
        meddle(agent, VCPU, "4-15")
        assert reconciler.reconcile(HOST, "guest-changed").drifts == ()
    assert len(trail(service, "drift.found")) == FREE_RETRIES
    assert len(trail(service, "plan.create")) <= 1 + FREE_RETRIES
    assert drift.backoff_until is not None


@pytest.fixture
def two_guests(agent):
    """Another guest, g2, whose changes fail."""
    agent.host.taken = replace(agent.host.taken, guests=(*agent.host.taken.guests, guest(2, 1, ALL)))
    agent.host.failing = {agent.host.taken.guests[1].uuid: "no answer from libvirt within 1 s"}
    return agent


def first_guest(agent):
    """The affinities of the threads of g1 and of the daemon."""
    now = agent.snapshot(0)
    threads = (*now.guests[0].emulator.threads, *(vcpu.thread for vcpu in now.guests[0].vcpus))
    return {thread.name: str(thread.affinity) for thread in (*threads, *now.processes[0].threads)}


def runs_of(service):
    return service.runs(HOST, PageRequest(99)).items


@pytest.mark.fault(47)
def test_a_guest_that_hangs_delays_no_other_and_backs_off(service, reconciler, two_guests, clock):
    agent = two_guests
    service.set_policy(HOST, ENFORCE, ANN)
    report = reconciler.reconcile(HOST, "started")
    assert first_guest(agent) == PLACED
    (run,) = runs_of(service)
    assert (run.state, report.error) == ("applied_partly", f"run {run.id} is applied_partly: {run.error}")
    hung = f"guest g2 emulator: {agent.host.failing[agent.host.taken.guests[1].uuid]}"
    (until,) = {drift.backoff_until for drift in report.drifts}
    assert timedelta() < until - clock.at <= BASE_DELAY
    assert {
        (drift.target.name, drift.cause, drift.detail, drift.times, drift.backoff_until) for drift in report.drifts
    } == {("g2", "failed", hung, 1, until)}
    for _ in range(5):
        assert reconciler.reconcile(HOST, "guest-changed").error == ""
    assert runs_of(service) == (run,), "it is not tried again"
    assert service.drift(HOST).drifts == reconciler.reconcile(HOST, "resync").drifts != ()
    (noted,) = trail(service, "drift.backoff")
    assert noted.subject == "guest g2"
    assert noted.result == f"attempt 1 failed, skipped until {until.isoformat(timespec='seconds')}: {hung}"

    for attempt in range(2, 14):
        clock.at = max(drift.backoff_until for drift in service.drift(HOST).drifts)
        report = reconciler.reconcile(HOST, "resync")
        assert (len(runs_of(service)), {drift.times for drift in report.drifts}) == (attempt, {attempt})
        assert first_guest(agent) == PLACED
        assert all(drift.backoff_until <= clock.at + MAX_DELAY for drift in report.drifts)
    assert len(trail(service, "drift.backoff")) == 13

    agent.host.failing.clear()
    clock.at = max(drift.backoff_until for drift in report.drifts)
    assert reconciler.reconcile(HOST, "resync").drifts == ()
    assert agent.host.mask(12_010) == "4-15"
    assert service.verify_audit().ok


@pytest.mark.fault(47)
def test_another_guest_starts_while_one_hangs(service, reconciler, two_guests):
    agent = two_guests
    service.set_policy(HOST, ENFORCE, ANN)
    reconciler.reconcile(HOST, "started")
    agent.host.taken = replace(agent.host.taken, guests=(*agent.host.taken.guests, guest(3, 1, ALL)))
    report = reconciler.reconcile(HOST, "guest-started")
    run = runs_of(service)[0]
    assert (run.state, {entry.change.target.name for entry in service.entries(run.id)}) == ("applied", {"g3"})
    assert {(drift.target.name, drift.cause) for drift in report.drifts} == {("g2", "failed")}


def test_while_a_change_of_the_host_itself_backs_off_no_guest_is_changed(service, reconciler, agent):
    """The other changes need it."""
    kernel_threads = replace(KERNEL, unbound=ALL)
    scopes = (Cgroup("machine.slice", MEMBER), Cgroup("machine.slice/1.scope", MEMBER))
    agent.host.taken = snapshot(plain(16, kernel=kernel_threads), [guest(1, 2, ALL, cgroups=scopes)])
    agent.host.failing = {"": "the kernel refuses"}
    service.set_policy(HOST, isolated("enforce", isolation="live"), ANN)
    failed = reconciler.reconcile(HOST, "started")
    assert {each.target.kind for each in failed.drifts if each.backoff_until} == {"workqueue"}
    (run,) = runs_of(service)
    meddle(agent, VCPU, "0-15")
    report = reconciler.reconcile(HOST, "guest-changed")
    assert {"workqueue", "vcpu"} <= {each.target.kind for each in report.drifts}
    assert (runs_of(service), agent.host.mask(VCPU)) == ((run,), "0-15")


@pytest.mark.fault(47)
def test_a_guest_that_hangs_alone_is_not_measured_again_and_again(service, reconciler, agent):
    agent.host.taken = replace(agent.host.taken, processes=())
    agent.host.failing = {agent.host.taken.guests[0].uuid: "no answer"}
    service.set_policy(HOST, ENFORCE, ANN)
    assert reconciler.reconcile(HOST, "started").error.endswith("is undone: guest g1 emulator: no answer")
    for _ in range(5):
        report = reconciler.reconcile(HOST, "resync")
    assert {drift.cause for drift in report.drifts} == {"failed"}
    assert len(runs_of(service)) == 1
    assert len([seconds for seconds in agent.host.samples if seconds]) <= 2


@pytest.mark.fault(47)
def test_a_back_off_outlives_the_server(service, reconciler, two_guests, store, clock):
    service.set_policy(HOST, ENFORCE, ANN)
    drifts = reconciler.reconcile(HOST, "started").drifts
    with closing(ServiceParts({HOST: two_guests}, store, clock, lambda: uuid.uuid4().hex[:12], 5.0)) as later:
        assert later.reconciler.reconcile(HOST, "started").drifts == drifts
        assert len(runs_of(service)) == 1
        clock.at -= timedelta(days=1)
        (until,) = {drift.backoff_until for drift in later.reconciler.reconcile(HOST, "resync").drifts}
        assert timedelta() < until - clock.at <= BASE_DELAY, "a step of the clock backwards freezes no target"


@pytest.mark.fault(48)
def test_a_process_that_moves_faster_than_a_plan_is_made_backs_off_alone(service, reconciler, agent, monkeypatch):
    service.set_policy(HOST, ENFORCE, ANN)
    apply = agent.apply
    moved = "process daemon (500) thread 500 may run on 3, no longer on 0-15"

    def refuse(plan, run, progress):
        if any(change.target.kind == "process" for change in plan.changes):
            raise StalePlan(plan.id, (moved,), ({"kind": "process", "owner": "500", "part": 1, "name": "daemon"},))
        return apply(plan, run, progress)

    started = agent.host.taken.processes[0].started
    monkeypatch.setattr(agent, "apply", refuse)
    if started != 1:
        agent.host.taken = replace(agent.host.taken, processes=(replace(agent.host.taken.processes[0], started=1),))
    (drift,) = reconciler.reconcile(HOST, "started").drifts
    assert (drift.target.kind, drift.cause) == ("process", "failed")
    assert drift.detail == f"{moved}, after a new plan: the process or another program sets its affinity"
    assert kernel(agent) == PLACED | {"daemon": "0-15"}


def test_an_apply_in_part_is_recorded_as_such_without_a_policy(service, two_guests):
    made = service.plan(HOST, Request(), None, 5.0, ANN)
    run = service.apply(made.id, ApplyOptions(), ANN)
    assert list(service.follow(run.id))[-1].run.state == "applied_partly"
    report = service.drift(HOST)
    assert (report.placement, {drift.target.name for drift in report.drifts}) == (made.id, {"g2"})
    assert {drift.cause for drift in report.drifts} == {"arrived"}
    list(service.follow(service.rollback(run.id, ANN).id))
    assert kernel(two_guests) == FREE
    assert service.drift(HOST).placement == ""
