"""A host with a history, the service over it, and a plan for a guest."""

import uuid
from contextlib import closing
from dataclasses import replace

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.fakes.probed_host import guest
from support.fakes.ring import Ring
from support.fakes.watched_run import DB, TERM, WEB, Hand, Load
from support.values import NOON, busy_plan, cpus, make_snapshot

from pinner.model.change import AffinityChange, Target, ThreadMask
from pinner.model.plan.objective import Objective
from pinner.service.local import ServiceParts
from pinner.store.repositories import open_store


@pytest.fixture
def clock():
    return Hand()


@pytest.fixture
def load(clock):
    return Load(clock)


@pytest.fixture
def agent(tmp_path, clock, load):
    made = HostedAgent(
        tmp_path / "agent", replace(make_snapshot(), guests=(guest("web1", WEB), guest("db1", DB))), clock
    )
    made.histories = Ring({WEB: "web1", DB: "db1"}, load)
    yield made
    made.journal.close()


@pytest.fixture
def store(tmp_path):
    with open_store(f"sqlite:///{tmp_path}/pinner.sqlite") as opened:
        yield opened


@pytest.fixture
def compose_parts(agent, store, clock):
    return lambda: closing(ServiceParts({"h1": agent}, store, clock, lambda: uuid.uuid4().hex[:12], 0.0))


@pytest.fixture
def parts(compose_parts):
    with compose_parts() as made:
        yield made


@pytest.fixture
def plan(store):
    basis = store.snapshots.add(make_snapshot())
    change = AffinityChange(Target("vcpu", WEB, 0, "web1"), (ThreadMask(101, 7, cpus("0-3")),), cpus("1"), "so")
    made = replace(busy_plan("plan-3", basis, (change,)), objective=Objective((TERM, replace(TERM, after=3.0))))
    store.plans.add(made, NOON)
    return made
