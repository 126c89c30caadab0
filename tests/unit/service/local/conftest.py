"""A service over one agent whose journal is real."""

from contextlib import closing
from datetime import timedelta

import pytest
from support.clock import Clock
from support.fakes.hosted_agent import HostedAgent
from support.fakes.local_service import compose_service
from support.values import busy_host


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
