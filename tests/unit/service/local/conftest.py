"""A service over one agent whose journal is real, and a plan of three changes."""

from contextlib import closing
from datetime import timedelta

import pytest
from support.clock import Clock
from support.fakes.hosted_agent import HostedAgent
from support.fakes.local_service import compose_service
from support.values import NOON, busy_host, busy_plan, make_change, make_snapshot


@pytest.fixture
def clock():
    return Clock(timedelta(seconds=1))


@pytest.fixture
def agent(tmp_path, clock):
    made = HostedAgent(tmp_path / "agent", busy_host(), clock)
    yield made
    made.journal.close()


@pytest.fixture
def service(store, agent, clock):
    with closing(compose_service(agent, store, clock)) as made:
        yield made.service


@pytest.fixture
def plan(store):
    """Three changes of processes 100, 110 and 120, from 0-3 to 1, 2 and 3."""
    basis = store.snapshots.add(make_snapshot())
    made = busy_plan("plan-3", basis, (make_change(90 + 10 * n, after=str(n), threads=2) for n in (1, 2, 3)))
    store.plans.add(made, NOON)
    return made
