"""An enforcing policy leaves a new guest as it is, if its place makes the objective worse."""

from dataclasses import replace

import pytest
from data.field.new_guests import CROWDED
from support.fakes.hosted_agent import HostedAgent
from support.fakes.reconciled_host import ANN, ENFORCE, HOST, trail
from support.hosts import cpus, guest, plain, process, snapshot

BOTH = cpus("0-1")
DAEMON = process(500, 50.0, "0-1", "0-1", name="daemon")
FIRST = guest(1, 2, BOTH)
WORSE = guest(2, 1, BOTH, iothreads=3)
"""With g2 on CPU 1, its four threads of QEMU share that CPU with three vCPUs: vcpu_vs_emulator 4 -> 5, and with
vcpu_vs_host 0.25 -> 0 and emulator_vs_host 0.5 -> 0 the tier rises by 0.25 without overcommit."""
LEFT = "guest g2 is left as it is: its place makes the objective worse: tier 6 "


@pytest.fixture
def agent(tmp_path, clock):
    """Two CPUs: the daemon gets CPU 0, the guest CPU 1."""
    made = HostedAgent(tmp_path / "agent", snapshot(plain(2), [FIRST], [DAEMON]), clock)
    yield made
    made.journal.close()


def masks(agent, uuid):
    (found,) = [each for each in agent.host.taken.guests if each.uuid == uuid]
    threads = (*found.emulator.threads, *(vcpu.thread for vcpu in found.vcpus))
    return {str(thread.affinity) for thread in threads}


def start(agent, *guests):
    started = {guest.uuid for guest in guests}
    others = (guest for guest in agent.host.taken.guests if guest.uuid not in started)
    agent.host.taken = replace(agent.host.taken, guests=(*others, *guests))


def test_a_new_guest_whose_place_is_worse_stays_and_the_others_are_placed(service, reconciler, agent):
    service.set_policy(HOST, ENFORCE, ANN)
    assert reconciler.reconcile(HOST, "started").error == ""
    assert masks(agent, FIRST.uuid) == {"1"}
    start(agent, WORSE)
    agent.host.move(11_010, "0-1")  # another program moves a vCPU of the first guest
    for _ in range(3):
        report = reconciler.reconcile(HOST, "guest-started")
        assert report.error.startswith(LEFT)
        assert {drift.target.owner for drift in report.drifts} == {WORSE.uuid}
        assert (masks(agent, FIRST.uuid), masks(agent, WORSE.uuid)) == ({"1"}, {"0-1"})
    (record,) = trail(service, "drift.found")
    assert record.result == report.error
    agent.host.taken = replace(agent.host.taken, guests=agent.host.taken.guests[:1])
    report = reconciler.reconcile(HOST, "guest-stopped")
    assert (report.error, report.drifts) == ("", ())


@pytest.mark.parametrize("seen_stopped", [True, False])
def test_each_start_of_a_guest_that_is_left_alone_is_audited(service, reconciler, agent, seen_stopped):
    service.set_policy(HOST, ENFORCE, ANN)
    reconciler.reconcile(HOST, "started")
    start(agent, WORSE)
    reconciler.reconcile(HOST, "guest-started")
    if seen_stopped:
        agent.host.taken = replace(agent.host.taken, guests=agent.host.taken.guests[:1])
        reconciler.reconcile(HOST, "guest-stopped")
    start(agent, WORSE if seen_stopped else restarted(WORSE))
    for _ in range(2):
        assert reconciler.reconcile(HOST, "guest-started").error.startswith(LEFT)
    first, second = trail(service, "drift.found")
    assert first.result == second.result


def restarted(guest):
    """The same guest, whose new QEMU happens to have the same thread ids."""
    threads = tuple(replace(thread, started=8) for thread in guest.emulator.threads)
    return replace(guest, emulator=replace(guest.emulator, threads=threads))


@pytest.fixture
def crowded(agent):
    agent.host.taken = CROWDED.start
    return agent


@pytest.mark.parametrize("fails", [True, False])
def test_what_is_judged_is_what_is_applied(service, reconciler, crowded, fails):
    """The place of g3 is worse while g2 stays where it is, and is not worse beside that of g2."""
    service.set_policy(HOST, ENFORCE, ANN)
    reconciler.reconcile(HOST, "started")
    start(crowded, CROWDED.second, CROWDED.third)
    crowded.host.failing = {CROWDED.second.uuid: "no answer"} if fails else {}
    reports = [reconciler.reconcile(HOST, "guest-started") for _ in range(3)]
    third = masks(crowded, CROWDED.third.uuid)
    assert (masks(crowded, CROWDED.second.uuid), third) == (({"3"}, {"2-3"}) if fails else ({"1,3"}, {"1,3"}))
    assert [report.error.startswith("guest g3 is left as it is: ") for report in reports[1:]] == [fails, fails]
    assert len(trail(service, "drift.found")) == fails
