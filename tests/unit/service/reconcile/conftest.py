"""The agent of a host in memory, and the service over it, with the real planner, journal and store."""

import uuid
from contextlib import closing

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.fakes.kept_policies import Policies
from support.fakes.reconciled_host import ALL, DAEMON, HOST
from support.hosts import guest, plain, snapshot

from pinner.service.local import ServiceParts


@pytest.fixture
def agent(tmp_path, clock):
    """Housekeeping 0-1, emulators 2-3, vCPUs 4-15."""
    made = HostedAgent(tmp_path / "agent", snapshot(plain(16), [guest(1, 2, ALL)], [DAEMON]), clock)
    made.host.needs_sample = True
    yield made
    made.journal.close()


@pytest.fixture
def parts(store, agent, clock):
    with closing(ServiceParts({HOST: agent}, store, clock, lambda: uuid.uuid4().hex[:12], 5.0)) as made:
        yield made


@pytest.fixture
def policies() -> Policies:
    return Policies()
