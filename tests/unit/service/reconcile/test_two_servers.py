"""Two servers of one database, rollbacks of all runs, and a policy that is deleted while its run is under way."""

import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.hosts import cpus, guest, plain, snapshot

from pinner.model.errors import HostBusy, PolicyConflict
from pinner.model.page import PageRequest
from pinner.model.plan.request import Request
from pinner.model.policy import Policy
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions
from pinner.service.local import ServiceParts

pytestmark = pytest.mark.fault(59, 72)
CALLER = Caller("admin", "127.0.0.1", "req-1")
HOST = "compute1"
FREE = cpus("0-15")


class HookedAgent(HostedAgent):
    """Calls each hook once."""

    before_rollback = staticmethod(lambda: None)
    after_snapshot = staticmethod(lambda: None)

    def rollback(self, run, progress):
        hook, self.before_rollback = self.before_rollback, lambda: None
        hook()
        return super().rollback(run, progress)

    def snapshot(self, sample_seconds):
        taken = super().snapshot(sample_seconds)
        if not sample_seconds:
            hook, self.after_snapshot = self.after_snapshot, lambda: None
            hook()
        return taken


@pytest.fixture
def agent(tmp_path, clock):
    made = HookedAgent(tmp_path / "agent", snapshot(plain(16), [guest(1, 2, FREE), guest(2, 2, FREE)]), clock)
    yield made
    made.journal.close()


def composed(agent, store, clock):
    return closing(ServiceParts({HOST: agent}, store, clock, lambda: uuid.uuid4().hex[:12], 5.0))


@pytest.fixture
def parts(store, agent, clock):
    with composed(agent, store, clock) as made:
        yield made


@pytest.fixture
def other(store, agent, clock):
    """The parts of the second server."""
    with composed(agent, store, clock) as made:
        yield made


def ended(service, run):
    list(service.follow(run.id))
    return service.run(run.id)


def apply(service, **request):
    plan = service.plan(HOST, Request(**request), None, 0.0, CALLER)
    return ended(service, service.apply(plan.id, ApplyOptions(), CALLER))


def roll_all_back(service):
    return ended(service, service.rollback_all(HOST, CALLER))


def states(service):
    return {run.id: run.state for run in service.runs(HOST, PageRequest(20)).items}


def require_nothing_left(agent, *services):
    assert set(agent.host.kernel().values()) <= {str(FREE)}
    for each in services:
        assert set(states(each).values()) == {"rolled_back"}
        assert each.drift(HOST).placement == ""
        assert each.verify_audit().ok


def test_a_run_of_another_server_that_a_rollback_of_all_runs_undid_is_rolled_back(service, other, agent):
    """The centre has the run after the rollback, and the agent before it."""
    apply(service)
    agent.before_rollback = lambda: apply(other.service, emulator="4-5")
    assert roll_all_back(service).state == "rolled_back"
    require_nothing_left(agent, service, other.service)


def test_two_servers_roll_all_runs_back_at_once(service, other, agent):
    """The agent makes one after the other, or refuses one by name."""
    apply(service)
    agent.host.gate = threading.Semaphore(0)
    first = service.rollback_all(HOST, CALLER)
    with ThreadPoolExecutor(1) as workers:
        second = workers.submit(other.service.rollback_all, HOST, CALLER)
        agent.host.gate.release(1000)
        assert ended(service, first).state == "rolled_back"
        try:
            assert ended(other.service, second.result()).state == "rolled_back"
        except HostBusy as refusal:
            assert refusal.details["run"] == first.id
    states(service)
    assert set(agent.host.kernel().values()) <= {str(FREE)}
    assert service.verify_audit().ok


def test_the_other_server_records_no_placement_from_before_a_rollback_of_all_runs(service, other, agent, store):
    apply(service)
    service.set_policy(HOST, Policy(Request(busy_threshold=3.0)), CALLER)
    agent.after_snapshot = lambda: roll_all_back(service)
    other.reconciler.reconcile(HOST, "policy set")
    assert store.placements.get(HOST) is None
    require_nothing_left(agent, service, other.service)


@pytest.mark.parametrize("by_other", [False, True])
def test_a_run_whose_policy_is_deleted_meanwhile_ends_and_is_not_made_again(
    service, other, reconciler, agent, by_other
):
    service.set_policy(HOST, Policy(Request(), "enforce"), CALLER)
    agent.host.gate = threading.Semaphore(1)  # one change is made
    with ThreadPoolExecutor(1) as workers:
        reconciled = workers.submit(reconciler.reconcile, HOST, "started")
        while not (running := [run for run, state in states(service).items() if state == "running"]):
            assert not reconciled.done(), reconciled.result()
        with pytest.raises(PolicyConflict):
            service.rollback_all(HOST, CALLER)
        (other.service if by_other else service).delete_policy(HOST, CALLER)
        agent.host.gate.release(1000)
        reconciled.result(20)
    assert states(service) == {running[0]: "applied"}
    assert service.drift(HOST).mode is None
    reconciler.reconcile(HOST, "resync")
    assert states(service) == {running[0]: "applied"}, "the placement stays as it is"
    assert roll_all_back(service).state == "rolled_back"
    reconciler.reconcile(HOST, "resync")
    require_nothing_left(agent, service, other.service)
