"""From the service to the kernel and back, for a real process whose threads have different masks."""

import os
import uuid
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from support.system.kernel import THREADS, masks, process, started
from support.system.own_snapshot import snapshot_of
from support.values import NOON, make_plan, make_run, make_snapshot

from pinner.agent.host_event_queue import HostEventQueue
from pinner.agent.local import LocalAgent
from pinner.agent.trail.signing import SigningKey
from pinner.agent.trail.trail import AgentTrailFile
from pinner.host.live import LiveHost
from pinner.host.virt.libvirt import Libvirt
from pinner.model.change import AffinityChange, Target, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid, RunConflict, StalePlan
from pinner.model.page import PageRequest
from pinner.model.plan.plan import Basis, Roles
from pinner.model.plan.request import Request
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions, Entry
from pinner.service.local import ServiceParts
from pinner.store.journal.journal import StoredJournal

ANN = Caller("ann", "cli", "req-1")
CPUS = sorted(os.sched_getaffinity(0))
ROLES = Roles(CpuSet.of(CPUS[:1]), CpuSet.of(CPUS[:1]), CpuSet.of(CPUS[1:]), ("this machine has few CPUs",))

pytestmark = pytest.mark.needs("two_cpus")


@pytest.fixture
def journal(tmp_path):
    with closing(StoredJournal(tmp_path / "agent")) as journal:
        yield journal


@pytest.fixture
def host():
    # The tests change no guest, so no libvirtd is needed.
    return LiveHost(Libvirt("qemu:///system"))


def clock():
    return datetime.now(UTC)


@pytest.fixture
def agent(host, journal, busy, tmp_path):
    trail = AgentTrailFile("h1", journal.chain, SigningKey(tmp_path / "agent" / "signing.key"), clock)
    return LocalAgent(lambda _: snapshot_of([busy]), host, journal, clock, HostEventQueue(clock), trail, name="h1")


@pytest.fixture
def service(agent, store):
    composed = ServiceParts({"h1": agent}, store, lambda: datetime.now(UTC), lambda: uuid.uuid4().hex[:12], 0.0)
    with closing(composed):
        yield composed.service


@pytest.fixture
def busy():
    """A process of three threads; the last thread may run only on the last CPU."""
    with process(THREADS.format(count=3)) as pid:
        os.sched_setaffinity(max(masks(pid)), CPUS[-1:])
        yield pid


@pytest.fixture
def plan(store, host, busy):
    """A plan that moves the process to the first CPU."""
    target = Target("process", str(busy), started(busy), "busy")
    before = tuple(ThreadMask(mask.tid, mask.started, mask.cpus) for mask in host.masks(target))
    change = AffinityChange(target, before, CpuSet.of(CPUS[:1]), "it is busy")
    key = store.snapshots.add(make_snapshot())
    basis = Basis(key, NOON, host.fingerprint())
    # The request names the process, because the owner of one of its threads restricted that thread.
    request = Request(processes=(str(busy),))
    plan = replace(make_plan("plan-1", key, (change,)), basis=basis, request=request, roles=ROLES)
    store.plans.add(plan, NOON)
    return plan


def test_a_rollback_restores_the_mask_of_each_thread(service, journal, plan, busy):
    before = masks(busy)
    assert len(set(before.values())) == 2
    run = service.apply(plan.id, ApplyOptions(), ANN)
    assert list(service.follow(run.id))[-1].run.state == "applied"
    assert set(masks(busy).values()) == {str(CPUS[0])}
    assert journal.placed() == (CpuSet.of(CPUS[:1]),)
    assert service.entries(run.id) == journal.entries(run.id)

    undo = service.rollback(run.id, ANN)
    progress = list(service.follow(undo.id))
    assert [(p.entry and p.entry.state, p.done, p.total) for p in progress] == [("undone", 1, 1), (None, 1, 1)]
    assert masks(busy) == before
    assert [each.run(one.id).state for each in (service, journal) for one in (run, undo)] == ["rolled_back"] * 4
    assert journal.placed() == ()
    assert service.verify_audit().ok
    with pytest.raises(RunConflict, match="rolled_back"):
        service.rollback(run.id, ANN)


def test_an_apply_reads_only_the_settings_that_its_plan_changes(host, journal, busy, plan, tmp_path):
    """A host may have thousands of interrupts."""
    trail = AgentTrailFile("h1", journal.chain, SigningKey(tmp_path / "agent" / "signing.key"), clock)
    asked = []

    def inventory(kinds, inside):
        asked.append({*kinds, *inside})
        return snapshot_of([busy])

    agent = LocalAgent(
        lambda _: pytest.fail("everything is read"), host, journal, clock, HostEventQueue(clock), trail,
        name="h1", take_inventory=inventory,
    )  # fmt: skip
    assert agent.apply(plan, make_run(), lambda *_: None).state == "applied"
    assert asked == [{"process"}]
    assert set(masks(busy).values()) == {str(CPUS[0])}
    with pytest.raises(Invalid, match="migrate_memory"):
        agent.apply(plan, make_run("run-2", migrate_memory=True), lambda *_: None)
    assert asked[1:] == [{"process", "memory"}]


def test_a_second_apply_changes_nothing(service, plan, busy):
    first = service.apply(plan.id, ApplyOptions(), ANN)
    list(service.follow(first.id))
    second = service.apply(plan.id, ApplyOptions(), ANN)
    assert [p.entry for p in service.follow(second.id)] == [None]
    assert (service.run(second.id).state, service.entries(second.id)) == ("applied", ())
    list(service.follow(service.rollback(first.id, ANN).id))
    assert len(set(masks(busy).values())) == 2


def test_a_stale_plan_is_refused_and_the_error_names_the_moved_targets(service, journal, plan, busy):
    os.sched_setaffinity(busy, CPUS[1:2])
    before = masks(busy)
    with pytest.raises(StalePlan) as caught:
        service.apply(plan.id, ApplyOptions(), ANN)
    assert caught.value.details["moved"]
    assert masks(busy) == before
    (run,) = service.runs(None, PageRequest(5)).items
    assert run.state == "failed"
    assert (journal.run(run.id).state, journal.entries(run.id)) == ("failed", ())


def test_a_refused_run_cannot_be_rolled_back(service, plan, busy):
    os.sched_setaffinity(busy, CPUS[1:2])
    with pytest.raises(StalePlan):
        service.apply(plan.id, ApplyOptions(), ANN)
    (run,) = service.runs(None, PageRequest(5)).items
    with pytest.raises(RunConflict, match="changed nothing"):
        service.rollback(run.id, ANN)


@pytest.mark.parametrize("call", ["recover", "apply", "rollback", "run"])
def test_the_run_of_a_dead_process_is_recovered_first(agent, journal, plan, busy, call):
    before = masks(busy)
    interrupted = make_run("run-dead", plan=plan.id)
    journal.begin(interrupted)
    journal.intend(*(Entry("run-dead", 1, change, "intent", NOON) for change in plan.changes))
    journal.leave(interrupted)
    os.sched_setaffinity(busy, CPUS[:1])
    match call:
        case "recover":
            agent.recover()
        case "run":
            assert agent.run("run-dead").state == "undone"
        case "apply":
            assert agent.apply(plan, make_run("run-2"), lambda *_: None).state == "applied"
            agent.rollback(make_run("run-3", kind="rollback", undoes="run-2"), lambda *_: None)
        case "rollback":
            with pytest.raises(RunConflict, match="run-dead is undone"):
                agent.rollback(make_run("run-2", kind="rollback", undoes="run-dead"), lambda *_: None)
    assert masks(busy) == before
    assert journal.run("run-dead").recovered == "interrupted; rolled back: 1 undone"
