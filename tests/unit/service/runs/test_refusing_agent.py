"""An agent that refuses some calls, because it answers as many as it can, while it carries out a run all the same."""

import time
import uuid
from contextlib import closing

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.values import NOON, busy_host, make_run

from pinner.model.errors import Busy
from pinner.model.page import PageRequest
from pinner.model.run.audit import Caller
from pinner.service.local import ServiceParts

ANN = Caller("ann", "10.0.0.1", "req-1")


class RefusingAgent(HostedAgent):
    """Refuses the calls that ``refused`` names."""

    refused: frozenset[str] = frozenset()

    def __getattribute__(self, name):
        if name in object.__getattribute__(self, "refused"):
            raise Busy("the agent", "it answers 64 calls already", overdue=False)
        return super().__getattribute__(name)


@pytest.fixture
def agent(tmp_path, clock):
    made = RefusingAgent(tmp_path / "agent", busy_host(), clock)
    yield made
    made.refused = frozenset()
    made.journal.close()


@pytest.fixture
def parts(agent, store, clock):
    with closing(ServiceParts({"h1": agent}, store, clock, lambda: uuid.uuid4().hex[:12], 0.0)) as made:
        yield made


def wait_through(service, run):
    while run.id in service._runs._ends:
        time.sleep(0.01)


@pytest.mark.parametrize("call", ["entries", "audit_head"])
def test_a_run_goes_on_and_its_end_is_stored_as_soon_as_the_agent_answers(service, agent, plan, call, monkeypatch):
    failures = []
    monkeypatch.setattr("threading.excepthook", failures.append)
    agent.refused = frozenset({call})
    run = service._runs.run_to_end(plan, ANN, "apply")
    wait_through(service, run)
    assert not failures
    assert set(agent.host.kernel().values()) == {"1", "2", "3"}
    agent.refused = frozenset()
    assert service.run(run.id).state == "applied"
    assert [entry.state for entry in service.entries(run.id)] == ["done"] * 3


def test_one_open_run_of_an_agent_that_refuses_hides_no_other_run(service, agent, store, plan, parts):
    store.runs.add(make_run("run-open", started_at=NOON))
    agent.refused = frozenset({"run", "entries", "close_run"})
    assert service.run("run-open").state == "running"
    assert [run.id for run in service.runs(None, PageRequest(5)).items] == ["run-open"]
    parts.runs.catch_up()  # a server starts


def test_an_audit_is_verified_as_far_as_the_agent_answers(service, agent):
    agent.refused = frozenset({"audit_records"})
    found = service.verify_audit()
    assert [finding.kind for finding in found.findings] == ["unreachable"]
