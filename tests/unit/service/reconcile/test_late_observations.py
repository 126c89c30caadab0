"""Observations that began before a rollback of all runs or before a change of the policy, and end after it."""

import uuid
from contextlib import closing

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.hosts import cpus, guest, plain, snapshot

from pinner.model.page import PageRequest
from pinner.model.plan.request import Request
from pinner.model.policy import Policy
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions
from pinner.service.local import ServiceParts

CALLER = Caller("admin", "127.0.0.1", "req-1")
HOST = "compute1"
ENFORCE = Policy(Request(), "enforce")


class HookedAgent(HostedAgent):
    """Calls ``after_snapshot`` once, when an observation has its snapshot and has not stored its result yet."""

    after_snapshot = staticmethod(lambda: None)

    def snapshot(self, sample_seconds):
        taken = super().snapshot(sample_seconds)
        if not sample_seconds:  # else it is the measurement before an observation
            hook, self.after_snapshot = self.after_snapshot, lambda: None
            hook()
        return taken


@pytest.fixture
def agent(tmp_path, clock):
    guests = [guest(1, 2, cpus("0-15")), guest(2, 2, cpus("0-15"))]
    made = HookedAgent(tmp_path / "agent", snapshot(plain(16), guests), clock)
    yield made
    made.journal.close()


class Ids:
    """New ids; calls ``hook`` once before an id is made."""

    def __init__(self):
        self.hook = None

    def __call__(self):
        hook, self.hook = self.hook, None
        if hook is not None:
            hook()
        return uuid.uuid4().hex[:12]


@pytest.fixture
def ids():
    return Ids()


@pytest.fixture
def parts(store, agent, clock, ids):
    with closing(ServiceParts({HOST: agent}, store, clock, ids, 5.0)) as made:
        yield made


def ended(service, run):
    list(service.follow(run.id))
    return service.run(run.id)


def apply(service):
    plan = service.plan(HOST, Request(), None, 0.0, CALLER)
    return ended(service, service.apply(plan.id, ApplyOptions(), CALLER))


def roll_all_back(service):
    assert ended(service, service.rollback_all(HOST, CALLER)).state == "rolled_back"


@pytest.mark.fault(59)
def test_no_placement_is_recorded_from_before_a_rollback_of_all_runs(service, reconciler, agent, store):
    """The policy's request places the guests as the applied plan has done."""
    apply(service)
    service.set_policy(HOST, Policy(Request(busy_threshold=3.0)), CALLER)
    agent.after_snapshot = lambda: roll_all_back(service)
    reconciler.reconcile(HOST, "policy set")
    assert store.placements.get(HOST) is None
    assert {drift.cause for drift in service.drift(HOST).drifts} == {"arrived"}, "nobody has moved a guest"


@pytest.mark.fault(59)
def test_no_placement_is_recorded_for_a_run_that_was_rolled_back_meanwhile(service, store, monkeypatch):
    apply(service)
    read = store.snapshots.get

    def read_slowly(snapshot):
        # Only here the observation stands between the reading of the last run and the record of its placement.
        monkeypatch.setattr(store.snapshots, "get", read)
        found = read(snapshot)
        roll_all_back(service)
        return found

    monkeypatch.setattr(store.snapshots, "get", read_slowly)
    service.drift(HOST)
    assert store.placements.get(HOST) is None


@pytest.mark.fault(59)
def test_no_run_follows_the_deletion_of_its_policy(service, reconciler, agent, store, ids, monkeypatch):
    """The policy is deleted, and all runs are rolled back, when the policy has been compared for the last time."""
    service.set_policy(HOST, ENFORCE, CALLER)

    def off():
        service.delete_policy(HOST, CALLER)
        roll_all_back(service)

    keep = store.plans.add

    def keep_and_arm(*arguments, **options):
        ids.hook = off  # the next id is the one of the run
        keep(*arguments, **options)

    monkeypatch.setattr(store.plans, "add", keep_and_arm)
    report = reconciler.reconcile(HOST, "started")
    assert (report.mode, agent.host.writes) == (None, [])
    assert [run.kind for run in service.runs(HOST, PageRequest(10)).items] == ["rollback"]
    assert service.verify_audit().ok
