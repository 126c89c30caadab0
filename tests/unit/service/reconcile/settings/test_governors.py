"""A policy with frequency governors: set, kept, and restored."""

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.hosts import cpus, guest, plain, snapshot

from pinner.model.machine.topology import FAST, FrequencyDomain
from pinner.model.plan.request import Request
from pinner.model.policy import Policy
from pinner.model.run.audit import Caller
from pinner.model.states import Governor

ANN = Caller("ann", "10.0.0.1", "req-1")
HOST = "compute1"
SLOW = Governor("powersave")
DOMAINS = tuple(FrequencyDomain(cpu, cpus(str(cpu)), SLOW) for cpu in (0, 4, 15))


@pytest.fixture
def agent(tmp_path, clock):
    taken = snapshot(plain(16), [guest(1, 2, cpus("0-15"))], governors=DOMAINS)
    made = HostedAgent(tmp_path / "agent", taken, clock)
    yield made
    made.journal.close()


def test_a_policy_keeps_governors(service, reconciler, agent):
    service.set_policy(HOST, Policy(Request(remedies=("governors",)), "enforce"), ANN)
    assert reconciler.reconcile(HOST, "policy").drifts == ()
    assert [each.governor for each in agent.snapshot(0).governors] == [SLOW, FAST, FAST]
    agent.host.set_setting("governor", 4, Governor("conservative"))
    (drift,) = service.drift(HOST).drifts
    assert (str(drift.target), tuple(map(str, drift.states))) == (
        "governor of CPUs 4",
        ("conservative", "performance"),
    )
    assert reconciler.reconcile(HOST, "resync").drifts == ()
    assert agent.snapshot(0).governors[1].governor == FAST
    service.delete_policy(HOST, ANN)
    back = service.rollback_all(HOST, ANN)
    assert list(service.follow(back.id))[-1].run.state == "rolled_back"
    assert agent.snapshot(0).governors == DOMAINS
