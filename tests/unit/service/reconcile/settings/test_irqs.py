"""A policy with interrupts: placed, kept, and restored."""

from dataclasses import replace

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.hosts import cpus, guest, plain, process, snapshot

from pinner.model.machine.interrupts import DeviceIrq, DeviceIrqs
from pinner.model.machine.topology import Device
from pinner.model.plan.request import Request
from pinner.model.policy import Policy
from pinner.model.run.audit import Caller

ANN = Caller("ann", "10.0.0.1", "req-1")
HOST, NIC = "compute1", "0000:3b:00.0"
WITH = Request(remedies=("irqs",))
IRQS = DeviceIrqs(tuple(DeviceIrq(24 + n, f"ens1-rx-{n}", NIC, cpus("0-15")) for n in range(3)))


@pytest.fixture
def agent(tmp_path, clock):
    """Housekeeping 0-1, emulators 2-3, vCPUs 4-15."""
    top = plain(16, devices=(Device("pci", NIC, 0),))
    taken = snapshot(top, [guest(1, 2, cpus("0-15"))], [process(500, 50.0, "0-15", name="daemon")], irqs=IRQS)
    made = HostedAgent(tmp_path / "agent", taken, clock)
    made.host.needs_sample = True
    yield made
    made.journal.close()


def affinities(agent):
    return [str(irq.cpus) for irq in agent.snapshot(0).irqs.irqs]


def test_a_policy_keeps_interrupts(service, reconciler, agent):
    service.set_policy(HOST, Policy(WITH, "enforce"), ANN)
    assert reconciler.reconcile(HOST, "policy").drifts == ()
    assert affinities(agent) == ["0", "1", "0"]
    agent.host.set_setting("irq", 25, cpus("9"))
    (drift,) = service.drift(HOST).drifts
    assert (str(drift.target), str(drift.expected), tuple(map(str, drift.states))) == (
        f"irq 25 ens1-rx-1 ({NIC})",
        "1",
        ("9", "1"),
    )
    assert reconciler.reconcile(HOST, "resync").drifts == ()
    assert affinities(agent) == ["0", "1", "0"]
    service.delete_policy(HOST, ANN)
    back = service.rollback_all(HOST, ANN)
    assert list(service.follow(back.id))[-1].run.state == "rolled_back"
    assert affinities(agent) == ["0-15"] * 3


def test_a_policy_that_asks_for_interrupts_no_more_leaves_them_until_a_rollback(service, reconciler, agent):
    service.set_policy(HOST, Policy(WITH, "enforce"), ANN)
    reconciler.reconcile(HOST, "policy")
    service.set_policy(HOST, Policy(Request(), "enforce"), ANN)
    assert reconciler.reconcile(HOST, "policy").drifts == ()
    agent.host.set_setting("irq", 25, cpus("9"))
    assert (service.drift(HOST).drifts, affinities(agent)) == ((), ["0", "9", "0"])
    service.set_policy(HOST, Policy(Request(), "observe"), ANN)
    agent.host.set_setting("irq", 25, cpus("1"))
    back = service.rollback_all(HOST, ANN)
    assert list(service.follow(back.id))[-1].run.state == "rolled_back"
    assert affinities(agent) == ["0-15"] * 3


def test_an_interrupt_in_backoff_does_not_hinder_other_targets(service, reconciler, agent):
    service.set_policy(HOST, Policy(WITH, "enforce"), ANN)
    reconciler.reconcile(HOST, "policy")
    agent.host.failing[f"{NIC} ens1-rx-1"] = "the kernel refuses CPUs 1: Input/output error"
    agent.host.set_setting("irq", 25, cpus("9"))
    reconciler.reconcile(HOST, "resync")
    agent.host.set_setting("irq", 24, cpus("9"))
    agent.host.move(500, "9")
    left = reconciler.reconcile(HOST, "resync").drifts
    assert [(drift.target.part, drift.cause) for drift in left] == [(25, "failed")]
    assert affinities(agent) == ["0", "9", "0"]
    assert agent.host.mask(500) == "0-1"


def test_an_old_agents_snapshot_is_a_clear_error_of_the_policy(service, reconciler, agent):
    service.set_policy(HOST, Policy(WITH, "enforce"), ANN)
    reconciler.reconcile(HOST, "policy")
    agent.host.taken = replace(agent.host.taken, irqs=None)
    assert "this snapshot has none, so take a new one" in reconciler.reconcile(HOST, "resync").error
