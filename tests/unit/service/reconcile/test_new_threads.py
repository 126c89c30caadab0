"""Threads of a guest that appear after its placement: those of a migration, and vhost threads."""

import uuid
from contextlib import closing
from dataclasses import replace

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.hosts import cpus, guest, plain, snapshot

from pinner.model.machine.process import Thread
from pinner.model.policy import Policy
from pinner.model.run.audit import Caller
from pinner.service.local import ServiceParts

ANN = Caller("ann", "10.0.0.1", "req-1")
ALL = cpus("0-15")
HOST = "compute1"
EMULATOR = cpus("2-3")
PLACED = {"emulator": "2-3", "vhost": "2-3"}

pytestmark = pytest.mark.fault(65)


@pytest.fixture
def agent(tmp_path, clock):
    """Housekeeping 0-1, emulators 2-3, vCPUs 4-15."""
    made = HostedAgent(tmp_path / "agent", snapshot(plain(16), [guest(1, 2, ALL)]), clock)
    yield made
    made.journal.close()


@pytest.fixture
def parts(store, agent, clock):
    with closing(ServiceParts({HOST: agent}, store, clock, lambda: uuid.uuid4().hex[:12], 5.0)) as made:
        yield made


def threads(names: tuple[str, ...], mask: str) -> tuple[Thread, ...]:
    return tuple(Thread(20_000 + n, 99, name, cpus(mask)) for n, name in enumerate(names))


def migrating(found, mask: str):
    """The guest with the eight threads that send its memory over as many channels."""
    sending = threads(tuple(f"multifdsend_{n}" for n in range(8)), mask)
    return replace(found, emulator=replace(found.emulator, threads=(*found.emulator.threads, *sending)))


def with_vhost(found, mask: str):
    """The guest with two vhost threads, which the kernel starts when the guest's driver does."""
    late = threads((f"vhost-{found.pid}",) * 2, mask)
    return replace(found, vhost_threads=tuple(replace(each, immovable_reason="guest") for each in late))


def change(agent, made):
    """The guest has these threads from now on."""
    agent.host.taken = agent.host.taken
    agent.host.taken = replace(agent.host.taken, guests=(made(agent.host.taken.guests[0]),))


@pytest.mark.parametrize(("late", "kind", "count"), [(migrating, "emulator", 1), (with_vhost, "vhost", 2)])
def test_threads_that_start_elsewhere_are_drift_and_are_placed(service, reconciler, agent, late, kind, count):
    service.set_policy(HOST, Policy(mode="enforce"), ANN)
    assert reconciler.reconcile(HOST, "started").drifts == ()
    change(agent, lambda found: late(found, "0-15"))
    drifts = service.drift(HOST).drifts
    assert [(drift.target.kind, drift.cause, str(drift.expected)) for drift in drifts] == [
        (kind, "thread", PLACED[kind])
    ] * count
    assert reconciler.reconcile(HOST, "resync").drifts == ()
    (placed,) = agent.snapshot(0.0).guests
    found = (*placed.emulator.threads, *placed.vhost_threads)
    assert {thread.affinity for thread in found} == {EMULATOR}


@pytest.mark.parametrize("mode", ["observe", "propose"])
@pytest.mark.parametrize("late", [migrating, with_vhost])
def test_a_policy_that_does_not_enforce_tells_of_them(service, reconciler, agent, late, mode):
    service.set_policy(HOST, Policy(mode="enforce"), ANN)
    reconciler.reconcile(HOST, "started")
    service.set_policy(HOST, Policy(mode=mode), ANN)
    change(agent, lambda found: late(found, "0-15"))
    report = reconciler.reconcile(HOST, "resync")
    assert {drift.cause for drift in report.drifts} == {"thread"}
    assert bool(report.proposed) == (mode == "propose")


@pytest.mark.parametrize("late", [migrating, with_vhost])
def test_threads_that_start_on_the_emulators_cpus_stay_there(service, reconciler, agent, late):
    """New threads inherit the mask of the thread that starts them. On the emulator's CPUs they are in their place."""
    service.set_policy(HOST, Policy(mode="enforce"), ANN)
    reconciler.reconcile(HOST, "started")
    change(agent, lambda found: late(found, str(EMULATOR)))
    assert reconciler.reconcile(HOST, "resync").drifts == ()
