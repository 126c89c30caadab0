"""A host whose load follows its placement, and the service over it."""

import pytest
from support.fakes.probed_host import ProbedHost

from pinner.store.repositories import open_store


@pytest.fixture
def host(tmp_path):
    made = ProbedHost(tmp_path / "agent")
    yield made
    made.agent.journal.close()


@pytest.fixture
def store(tmp_path):
    with open_store(f"sqlite:///{tmp_path}/pinner.sqlite") as opened:
        yield opened


@pytest.fixture
def parts(host, store):
    with host.compose(store) as made:
        yield made


@pytest.fixture
def plan(host, store):
    return host.plan(store)


@pytest.fixture
def plans(host, store, plan):
    """Three plans, which put web1 on CPU 1, 2 and 3."""
    strategies = {"2": "numa-local", "3": "isolated"}
    return [plan, *(host.plan(store, name=f"plan-{cpu}0", cpu=cpu, strategy=name) for cpu, name in strategies.items())]
