"""The agent of a host in memory, and the service over it."""

import uuid
from contextlib import closing

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.fakes.ring import Ring
from support.fakes.watched_host import (
    GUEST,
    HOST,
    Load,
)
from support.hosts import plain, process, snapshot

from pinner.service.local import ServiceParts


@pytest.fixture
def load(clock):
    return Load(clock)


@pytest.fixture
def agent(tmp_path, clock, load):
    daemon = process(500, 50.0, "0-15", "0-15", name="daemon")
    made = HostedAgent(tmp_path / "agent", snapshot(plain(16), [GUEST], [daemon]), clock)
    made.histories = Ring({GUEST.uuid: GUEST.name}, load)
    yield made
    made.journal.close()


@pytest.fixture
def restart(agent, store, clock):
    """Starts a server."""
    return lambda: closing(ServiceParts({HOST: agent}, store, clock, lambda: uuid.uuid4().hex[:12], 5.0))


@pytest.fixture
def parts(restart):
    with restart() as made:
        yield made
