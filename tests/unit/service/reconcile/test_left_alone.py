"""An enforcing policy leaves a new guest as it is, if its place makes the objective worse."""

from dataclasses import replace

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.fakes.reconciled_host import ANN, ENFORCE, HOST, trail
from support.hosts import cpus, guest, plain, process, snapshot

BOTH = cpus("0-1")
DAEMON = process(500, 50.0, "0-1", "0-1", name="daemon")


@pytest.fixture
def agent(tmp_path, clock):
    """Two CPUs: the daemon gets CPU 0, the guest CPU 1."""
    made = HostedAgent(tmp_path / "agent", snapshot(plain(2), [guest(1, 2, BOTH)], [DAEMON]), clock)
    yield made
    made.journal.close()


def masks(agent, uuid):
    (found,) = [each for each in agent.host.taken.guests if each.uuid == uuid]
    threads = (*found.emulator.threads, *(vcpu.thread for vcpu in found.vcpus))
    return {str(thread.affinity) for thread in threads}


def test_a_new_guest_whose_place_is_worse_stays_and_the_others_are_placed(service, reconciler, agent):
    """With g2 on CPU 1, its four threads of QEMU share that CPU with three vCPUs: vcpu_vs_emulator 4 -> 5, and with
    vcpu_vs_host 0.25 -> 0 and emulator_vs_host 0.5 -> 0 the tier rises by 0.25 without overcommit."""
    service.set_policy(HOST, ENFORCE, ANN)
    first = guest(1, 2, BOTH)
    assert reconciler.reconcile(HOST, "started").error == ""
    assert masks(agent, first.uuid) == {"1"}
    new = guest(2, 1, BOTH, iothreads=3)
    agent.host.taken = replace(agent.host.taken, guests=(*agent.host.taken.guests, new))
    agent.host.move(11_010, "0-1")  # another program moves a vCPU of the first guest
    for _ in range(3):
        report = reconciler.reconcile(HOST, "guest-started")
        assert report.error.startswith("left as it is: g2, whose place makes the objective worse: tier 6 ")
        assert {drift.target.owner for drift in report.drifts} == {new.uuid}
        assert (masks(agent, first.uuid), masks(agent, new.uuid)) == ({"1"}, {"0-1"})
    (record,) = trail(service, "drift.found")
    assert "guest g2 emulator: left as it is: g2" in record.result
    agent.host.taken = replace(agent.host.taken, guests=agent.host.taken.guests[:1])
    report = reconciler.reconcile(HOST, "guest-stopped")
    assert (report.error, report.drifts) == ("", ())
