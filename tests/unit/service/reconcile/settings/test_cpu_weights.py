"""A policy with the CPU weight of the guests: set, kept, and restored."""

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.hosts import cpus, guest, plain, snapshot

from pinner.model.plan.request import Request
from pinner.model.policy import Policy
from pinner.model.run.audit import Caller
from pinner.model.settings.cpu_weights import SLICE
from pinner.model.states import Number

ANN = Caller("ann", "10.0.0.1", "req-1")
HOST = "compute1"


@pytest.fixture
def agent(tmp_path, clock):
    taken = snapshot(plain(16), [guest(1, 2, cpus("0-15"))], cpu_weights={SLICE: 100})
    made = HostedAgent(tmp_path / "agent", taken, clock)
    yield made
    made.journal.close()


def test_a_policy_keeps_the_weight(service, reconciler, agent):
    service.set_policy(HOST, Policy(Request(remedies=("cpu-weights",)), "enforce"), ANN)
    assert reconciler.reconcile(HOST, "policy").drifts == ()
    assert agent.snapshot(0).cpu_weights == {SLICE: 1000}
    agent.host.set_setting("weight", SLICE, Number(100))
    (drift,) = service.drift(HOST).drifts
    assert (str(drift.target), tuple(map(str, drift.states))) == (f"weight {SLICE}", ("100", "1000"))
    assert reconciler.reconcile(HOST, "resync").drifts == ()
    assert agent.snapshot(0).cpu_weights == {SLICE: 1000}
    service.delete_policy(HOST, ANN)
    back = service.rollback_all(HOST, ANN)
    assert list(service.follow(back.id))[-1].run.state == "rolled_back"
    assert agent.snapshot(0).cpu_weights == {SLICE: 100}
