"""A policy with settings inside guests, one of which is silent when its run begins."""

from dataclasses import replace

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.hosts import cpus, guest, plain, snapshot

from pinner.model.plan.request import Request
from pinner.model.policy import Policy
from pinner.model.run.audit import Caller
from pinner.model.settings.inside import GuestQueue, GuestRps
from pinner.model.states import GuestCpus

ANN = Caller("ann", "10.0.0.1", "req-1")
HOST = "compute1"
GUESTS = [guest(number, 2, cpus("0-15")) for number in (1, 2)]
WHY = "the guest's agent needs more than 5 s"


def rps(guest):
    boot = "11111111-2222-3333-4444-555555555555"
    return GuestRps(guest.uuid, guest.name, boot, cpus("0-1"), (GuestQueue("eth0", 2, 0, cpus("")),))


@pytest.fixture
def agent(tmp_path, clock):
    made = HostedAgent(tmp_path / "agent", snapshot(plain(16), GUESTS, guest_rps=tuple(map(rps, GUESTS))), clock)
    yield made
    made.journal.close()


@pytest.mark.parametrize("now", [{"unread": WHY}, {"online": cpus("0")}], ids=["silent", "another number of vCPUs"])
def test_a_policy_counts_the_failure_and_places_all_others(service, reconciler, agent, monkeypatch, now):
    def inventory(_kinds, _inside):
        first, *others = agent.host.taken.guest_rps
        odd = replace(first, queues=(), **now) if "unread" in now else replace(first, **now)
        return replace(agent.host.taken, guest_rps=(odd, *others))

    monkeypatch.setattr(agent, "_take_inventory", inventory)
    service.set_policy(HOST, Policy(Request(remedies=("guest-rps",)), "enforce"), ANN)
    report = reconciler.reconcile(HOST, "policy")
    assert "is applied_partly: 1 of " in report.error
    states = {target.name: state for target, state in agent.host.states.items() if target.kind == "guest_rps"}
    assert states == {"g1 eth0": GuestCpus(cpus("")), "g2 eth0": GuestCpus(cpus("0-1"))}
    (drift,) = reconciler.reconcile(HOST, "resync").drifts
    assert (str(drift.target), drift.cause, drift.times) == ("guest g1 eth0 rps rx-0", "failed", 1)
    assert drift.backoff_until is not None
