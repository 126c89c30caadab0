"""A policy with a setting inside a guest, which somebody in the guest sets otherwise."""

from dataclasses import replace

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.hosts import cpus, guest, plain, snapshot

from pinner.model.page import PageRequest
from pinner.model.plan.request import Request
from pinner.model.policy import Policy
from pinner.model.run.audit import Caller
from pinner.model.settings.inside import GuestQueue, GuestRps
from pinner.model.states import GuestCpus

ANN = Caller("ann", "10.0.0.1", "req-1")
HOST = "compute1"
GUEST = guest(1, 4, cpus("0-15"))
CHOSEN, GIVEN = GuestCpus(cpus("1")), GuestCpus(cpus("0-3"))


def rps(vcpus):
    boot = "11111111-2222-3333-4444-555555555555"
    return (GuestRps(GUEST.uuid, "g1", boot, cpus("0-3"), (GuestQueue("eth0", 2, 0, cpus(vcpus)),)),)


@pytest.fixture
def agent(tmp_path, clock):
    made = HostedAgent(tmp_path / "agent", snapshot(plain(16), [GUEST], guest_rps=rps("")), clock)
    yield made
    made.journal.close()


@pytest.mark.parametrize("mode", ["observe", "propose", "enforce"])
def test_a_policy_shows_what_the_guest_chose_since_and_leaves_it(service, reconciler, agent, mode):
    def drifts():
        found = reconciler.reconcile(HOST, "resync").drifts
        return [(drift.cause, drift.states) for drift in found if drift.target.kind == "guest_rps"]

    request = Request(remedies=("guest-rps",))
    service.set_policy(HOST, Policy(request, "enforce"), ANN)
    reconciler.reconcile(HOST, "policy")
    agent.host.taken = replace(agent.host.taken, guest_rps=rps("0-3"))
    service.set_policy(HOST, Policy(request, mode), ANN)
    assert drifts() == []
    agent.host.taken = replace(agent.host.taken, guest_rps=rps("1"))
    assert [drifts() for _ in range(3)] == [[("guest", (CHOSEN, GIVEN))]] * 3
    assert [run.kind for run in service.runs(HOST, PageRequest(9)).items] == ["apply"]
    agent.host.taken = replace(agent.host.taken, guest_rps=rps("0-3"))
    assert drifts() == []
    found = [
        event.result
        for event in service.audit(HOST, None, None, PageRequest(50)).items
        if event.action == "drift.found"
    ]
    assert [result for result in found if "rps" in result] == [
        "guest g1 eth0 rps rx-0: the guest has set it since, and keeps it"
    ]
