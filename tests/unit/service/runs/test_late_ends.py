"""Ends of runs that the centre stores late: when the agent has begun another run of the host already."""

import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.hosts import cpus, guest, plain, snapshot
from support.values import make_run

from pinner.model.errors import HostBusy, HostUnreachable
from pinner.model.page import PageRequest
from pinner.model.plan.request import Request
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions
from pinner.service.local import ServiceParts
from pinner.service.runs import runs
from pinner.store.database.engine import write
from pinner.store.runs.entries import correct_entries

CALLER = Caller("admin", "127.0.0.1", "req-1")
HOST = "compute1"


class SlowHead(HostedAgent):
    """An agent whose signed head takes long while ``slow`` is set, so that the centre stores the end of a run late."""

    slow = False
    asked = threading.Event()
    go_on = threading.Event()
    before_apply = staticmethod(lambda: None)
    """Called once, when a run has been sent to the agent and has not begun."""
    unreachable = 0
    """How many readings of entries fail."""

    def apply(self, plan, run, progress):
        hook, self.before_apply = self.before_apply, lambda: None
        hook()
        return super().apply(plan, run, progress)

    def entries(self, run):
        if self.unreachable:
            self.unreachable -= 1
            raise HostUnreachable(HOST, "its agent is away for a moment")
        return super().entries(run)

    def audit_head(self, centre):
        if self.slow:
            self.slow = False
            self.asked.set()
            assert self.go_on.wait(60)
        return super().audit_head(centre)


@pytest.fixture
def agent(tmp_path, clock):
    guests = [guest(1, 2, cpus("0-15")), guest(2, 2, cpus("0-15"))]
    made = SlowHead(tmp_path / "agent", snapshot(plain(16), guests), clock)
    made.asked, made.go_on = threading.Event(), threading.Event()
    yield made
    made.journal.close()


@pytest.fixture
def parts(store, agent, clock):
    new_id = lambda: uuid.uuid4().hex[:12]  # noqa: E731
    with closing(ServiceParts({HOST: agent}, store, clock, new_id, 5.0, timedelta(minutes=1))) as made:
        yield made
        agent.go_on.set()  # the end of the service waits for the agent


def apply(service, **request):
    plan = service.plan(HOST, Request(**request), None, 0.0, CALLER)
    return ended(service, service.apply(plan.id, ApplyOptions(), CALLER))


def ended(service, run):
    list(service.follow(run.id))
    return service.run(run.id)


def begin(function, *arguments):
    """Call the function in a thread; returns its result later."""
    return ThreadPoolExecutor(1).submit(function, *arguments)


def test_a_rollback_of_all_runs_leaves_a_run_that_began_before_its_end_was_stored(service, agent):
    first = apply(service)
    agent.slow = True
    back = service.rollback_all(HOST, CALLER)
    assert agent.asked.wait(60)  # the agent has ended the rollback
    applying = begin(apply, service)
    time.sleep(0.3)
    agent.go_on.set()
    second = applying.result(10)
    assert ended(service, back).state == "rolled_back"
    assert [service.run(each.id).state for each in (first, second)] == ["rolled_back", "applied"]
    assert {entry.state for entry in service.entries(second.id)} == {"done"}
    assert service.drift(HOST).placement == second.plan
    assert service.verify_audit().ok


@pytest.mark.parametrize("every", [True, False])
def test_the_end_of_a_run_is_stored_before_the_run_is_undone(service, agent, every):
    agent.slow = True
    plan = service.plan(HOST, Request(), None, 0.0, CALLER)
    run = service.apply(plan.id, ApplyOptions(), CALLER)
    assert agent.asked.wait(60)  # the agent has ended the run
    back = begin(service.rollback_all, HOST, CALLER) if every else begin(service.rollback, run.id, CALLER)
    time.sleep(0.3)
    agent.go_on.set()
    assert ended(service, back.result(10)).state == "rolled_back"
    found = service.run(run.id)
    assert found.state == "rolled_back"
    assert found.ended_at is not None
    assert {entry.state for entry in service.entries(run.id)} == {"undone"}
    records = service.audit(None, None, None, PageRequest(200)).items
    assert [each.subject for each in records if each.action == "run.end"] == [back.result().id, run.id]
    assert service.verify_audit().ok


def test_the_end_of_a_rollback_whose_process_died_is_stored_before_the_next_run(service, agent, store, clock):
    first = apply(service)
    back = make_run("run-back", HOST, kind="rollback", plan="")
    store.runs.add(back)
    agent.rollback(back, lambda *_: None)
    second = apply(service)
    assert [service.run(each.id).state for each in (first, back, second)] == ["rolled_back", "rolled_back", "applied"]
    assert {entry.state for entry in service.entries(second.id)} == {"done"}


def test_a_run_is_refused_while_an_earlier_end_cannot_be_stored(service, agent, monkeypatch):
    monkeypatch.setattr(runs, "END_SECONDS", 0.1)
    apply(service)
    agent.slow = True
    back = service.rollback_all(HOST, CALLER)
    assert agent.asked.wait(60)
    with pytest.raises(HostBusy, match=back.id):
        apply(service)


@pytest.mark.fault(59)
def test_a_run_that_began_before_the_end_of_a_rollback_was_stored_keeps_its_state(service, agent):
    """The agent ends the rollback of all runs while the next run is on its way to the agent."""
    first = apply(service, guests=("g1",))
    agent.slow, agent.host.gate = True, threading.Semaphore(0)
    back = service.rollback_all(HOST, CALLER)

    def let_the_rollback_end():
        agent.host.gate.release(1000)
        assert agent.asked.wait(60)

    agent.before_apply = let_the_rollback_end
    second = apply(service, guests=("g2",))
    agent.go_on.set()
    assert ended(service, back).state == "rolled_back"
    assert [service.run(each.id).state for each in (first, second)] == ["rolled_back", "applied"]
    assert {entry.state for entry in service.entries(second.id)} == {"done"}
    assert service.drift(HOST).placement == second.plan
    assert service.verify_audit().ok


@pytest.mark.fault(59)
def test_a_run_of_another_server_that_began_before_the_end_was_stored_keeps_its_state(service, agent, store, clock):
    first = apply(service)
    agent.slow = True
    back = service.rollback_all(HOST, CALLER)
    assert agent.asked.wait(60)  # the agent has ended the rollback
    new_id = lambda: uuid.uuid4().hex[:12]  # noqa: E731
    with closing(ServiceParts({HOST: agent}, store, clock, new_id, 5.0, timedelta(minutes=1))) as other:
        agent.unreachable = 1  # just when the other server reads the end of the rollback
        second = apply(other.service)
        agent.go_on.set()
        assert ended(service, back).state == "rolled_back"
        assert [other.service.run(each.id).state for each in (first, second)] == ["rolled_back", "applied"]
        assert {entry.state for entry in other.service.entries(second.id)} == {"done"}
        assert other.service.drift(HOST).placement == second.plan


@pytest.mark.fault(59)
def test_a_run_that_has_not_begun_does_not_follow_a_rollback_of_all_runs(service, agent):
    """Else the host would be changed after the rollback, by a run from before it."""
    refusals = []

    def roll_back():
        with pytest.raises(HostBusy) as refusal:
            service.rollback_all(HOST, CALLER)
        refusals.append(refusal.value.details["run"])

    agent.before_apply = roll_back
    run = apply(service)
    assert (run.state, refusals) == ("applied", [run.id])
    assert ended(service, service.rollback_all(HOST, CALLER)).state == "rolled_back"
    assert set(agent.host.kernel().values()) == {"0-15"}


def test_each_change_of_a_rollback_is_recorded_once_where_the_agent_corrected_its_prior_masks(service, agent):
    """The rollback of an earlier run has corrected them in the agent's journal. The centre has what the run found."""
    run = apply(service)
    corrected = []
    for entry in agent.entries(run.id):
        before = tuple(replace(thread, cpus=cpus("0-7")) for thread in entry.change.before)
        corrected.append(replace(entry, change=replace(entry.change, before=before)))
    write(agent.journal._engine, lambda connection: correct_entries(connection, corrected))
    assert agent.entries(run.id) == tuple(corrected)
    undo = ended(service, service.rollback(run.id, CALLER))
    assert undo.state == "rolled_back"
    records = service.audit(None, None, None, PageRequest(200)).items
    subjects = [each.subject for each in records if each.action == "run.change" and undo.id in each.subject]
    assert len(subjects) == len(set(subjects)) == len(corrected)
    assert service.verify_audit().ok
