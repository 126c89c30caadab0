"""The recorded placement, from which drift is measured."""

import uuid
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest
from support.fakes.reconciled_host import ANN, ENFORCE, FREE, HOST, PLACED, VCPU, kernel, meddle, vcpu_targets
from support.hosts import cpus, guest, plain, process, snapshot
from support.values import NOON

from pinner.model.change import AffinityChange, ThreadMask
from pinner.model.errors import (
    RunConflict,
)
from pinner.model.plan.request import Request
from pinner.model.policy import BASE_DELAY, FREE_RETRIES, Policy
from pinner.model.run.journal import ApplyOptions
from pinner.service.local import ServiceParts


@pytest.mark.fault(55)
@pytest.mark.parametrize("step", [-timedelta(days=1), -timedelta(hours=1), timedelta(hours=1), timedelta(days=400)])
def test_a_clock_that_is_set_reverts_no_rebalance_of_an_operator(service, reconciler, agent, clock, step):
    """The numbers of the runs say which placement is the newest, not their times."""
    agent.host.taken = snapshot(plain(16, isolated="8-15"), [guest(1, 2, cpus("0-7")), guest(2, 2, cpus("0-7"))])
    service.set_policy(HOST, Policy(Request("isolated"), "enforce"), ANN)
    reconciler.reconcile(HOST, "started")
    rebalance = service.plan(HOST, Request("isolated", rebalance=True), None, 0.0, ANN)
    after = {target: cpus(mask) for target, mask in zip(vcpu_targets(agent), ("14", "15"), strict=False)}
    changes = tuple(
        AffinityChange(target, (ThreadMask(VCPU + n, 7, cpus(agent.host.mask(VCPU + n))),), mask, "so")
        for n, (target, mask) in enumerate(after.items())
    )
    wanted = tuple(replace(want, cpus=after.get(want.target, want.cpus)) for want in rebalance.wanted)
    moved = replace(rebalance, id="plan-moved", changes=changes, wanted=wanted)
    reconciler._store.plans.add(moved, NOON)
    clock.at += step
    list(service.follow(service.apply(moved.id, ApplyOptions(), ANN).id))
    assert [agent.host.mask(tid) for tid in (VCPU, VCPU + 1)] == ["14", "15"]
    for _ in range(2):
        assert reconciler.reconcile(HOST, "resync").drifts == ()
    assert [agent.host.mask(tid) for tid in (VCPU, VCPU + 1)] == ["14", "15"]


@pytest.mark.fault(55)
@pytest.mark.parametrize("step", [-timedelta(days=1), timedelta(days=1)])
def test_a_clock_that_is_set_leaves_no_target_alone(service, reconciler, agent, clock, step):
    service.set_policy(HOST, ENFORCE, ANN)
    reconciler.reconcile(HOST, "started")
    for _ in range(FREE_RETRIES):
        meddle(agent, VCPU, "9")
        reconciler.reconcile(HOST, "guest-changed")
    meddle(agent, VCPU, "9")
    clock.at += step
    reconciler.reconcile(HOST, "guest-changed")
    clock.at += BASE_DELAY
    assert reconciler.reconcile(HOST, "resync").drifts == ()
    assert kernel(agent) == PLACED


@pytest.mark.fault(55)
def test_a_placement_of_an_earlier_boot_is_placed_again_as_new(service, reconciler, agent):
    """After the restart every process has the id and start time of a placed one, and is another one."""
    restarted = agent.host.taken
    agent.host.taken = replace(restarted, boot="boot-1")
    service.set_policy(HOST, ENFORCE, ANN)
    reconciler.reconcile(HOST, "started")
    assert kernel(agent) == PLACED
    other = process(500, 0.0, "7", "7", name="other", reasons=["restricted"] * 2)
    daemon = replace(process(501, 0.0, "0-15", name="daemon"), started=4)
    agent.host.taken = replace(restarted, boot="boot-2", processes=(other, daemon))
    causes = {str(drift.target): drift.cause for drift in service.drift(HOST).drifts}
    assert causes["guest g1 vcpu 0"] == "arrived"
    assert reconciler.reconcile(HOST, "started").drifts == ()
    assert agent.host.mask(500) == "7", "the restricted process is not the placed one"
    assert agent.host.mask(501) == "0-1", "the daemon is the placed one, in a new process"
    stored, _ = reconciler._store.placements.get(HOST)
    assert stored.boot == "boot-2"
    assert reconciler.reconcile(HOST, "resync").drifts == ()


def test_a_policy_with_another_request_makes_a_new_placement(service, reconciler, agent):
    service.set_policy(HOST, ENFORCE, ANN)
    reconciler.reconcile(HOST, "started")
    service.set_policy(HOST, Policy(Request(housekeeping="5"), "enforce"), ANN)
    reconciler.reconcile(HOST, "policy set")
    assert kernel(agent)["daemon"] == "5"


def test_drift_from_an_applied_plan_without_a_policy(service, agent):
    made = service.plan(HOST, Request(), None, 5.0, ANN)
    run = service.apply(made.id, ApplyOptions(), ANN)
    list(service.follow(run.id))
    assert service.drift(HOST).placement == made.id
    meddle(agent, VCPU, "9")
    agent.host.cause = "libvirt"
    report = service.drift(HOST)
    assert [(str(drift.target), drift.cause) for drift in report.drifts] == [("guest g1 vcpu 0", "libvirt")]
    list(service.follow(service.rollback(run.id, ANN).id))
    assert service.drift(HOST).placement == ""


def test_drift_after_a_rollback_is_measured_against_the_run_before(service, agent):
    plans, runs = [], []
    for housekeeping in ("0", "1"):
        plans.append(service.plan(HOST, Request(housekeeping=housekeeping), None, 5.0, ANN))
        runs.append(service.apply(plans[-1].id, ApplyOptions(), ANN))
        list(service.follow(runs[-1].id))
        assert service.drift(HOST).placement == plans[-1].id
    list(service.follow(service.rollback(runs[1].id, ANN).id))
    assert service.drift(HOST).placement == plans[0].id


def test_the_placement_outlives_the_server(service, reconciler, agent, store, clock):
    service.set_policy(HOST, ENFORCE, ANN)
    reconciler.reconcile(HOST, "started")
    with closing(ServiceParts({HOST: agent}, store, clock, lambda: uuid.uuid4().hex[:12], 5.0)) as later:
        agent.host.samples.clear()
        agent.host.taken = replace(agent.host.taken, processes=())
        again = replace(process(900, 0.0, "0-15", name="daemon"), started=77)
        agent.host.taken = replace(agent.host.taken, processes=(again,))
        assert later.reconciler.reconcile(HOST, "started").drifts == ()
        assert not any(agent.host.samples)
        assert agent.host.mask(900) == "0-1"


def test_an_apply_that_changes_nothing_cannot_be_rolled_back(service, agent):
    made = service.plan(HOST, Request(), None, 5.0, ANN)
    first = service.apply(made.id, ApplyOptions(), ANN)
    list(service.follow(first.id))
    again = service.plan(HOST, Request(), None, 5.0, ANN)
    assert again.changes == ()
    second = service.apply(again.id, ApplyOptions(), ANN)
    list(service.follow(second.id))
    why = f"run {second.id} is applied: it changed nothing, so there is nothing to roll back; run {first.id} made the"
    with pytest.raises(RunConflict, match=why):
        service.rollback(second.id, ANN)
    assert kernel(agent) == PLACED
    assert service.drift(HOST).placement == again.id
    list(service.follow(service.rollback(first.id, ANN).id))
    assert kernel(agent) == FREE
    assert service.drift(HOST).placement == "", "nothing is placed any more"
