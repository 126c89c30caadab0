"""A policy with sysctls: set, kept, and restored."""

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.hosts import cpus, guest, plain, snapshot

from pinner.model.plan.request import Request
from pinner.model.policy import Policy
from pinner.model.run.audit import Caller
from pinner.model.states import Number

ANN = Caller("ann", "10.0.0.1", "req-1")
HOST = "compute1"
DEFAULTS = {"net.core.rmem_max": 212992, "vm.swappiness": 0}


@pytest.fixture
def agent(tmp_path, clock):
    taken = snapshot(plain(16), [guest(1, 2, cpus("0-15"))], sysctls=DEFAULTS)
    made = HostedAgent(tmp_path / "agent", taken, clock)
    yield made
    made.journal.close()


def test_a_policy_keeps_sysctls(service, reconciler, agent):
    service.set_policy(HOST, Policy(Request(remedies=("sysctls",)), "enforce"), ANN)
    assert reconciler.reconcile(HOST, "policy").drifts == ()
    assert agent.snapshot(0).sysctls == {"net.core.rmem_max": 26214400, "vm.swappiness": 0}
    agent.host.set_setting("sysctl", "net.core.rmem_max", Number(212992))
    (drift,) = service.drift(HOST).drifts
    assert (str(drift.target), tuple(map(str, drift.states))) == ("sysctl net.core.rmem_max", ("212992", "26214400"))
    assert reconciler.reconcile(HOST, "resync").drifts == ()
    assert agent.snapshot(0).sysctls["net.core.rmem_max"] == 26214400
    service.delete_policy(HOST, ANN)
    back = service.rollback_all(HOST, ANN)
    assert list(service.follow(back.id))[-1].run.state == "rolled_back"
    assert agent.snapshot(0).sysctls == DEFAULTS
