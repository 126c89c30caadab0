"""The parts of a composed service that tests of the service use, and a plan. A test module provides ``parts``."""

import pytest
from support.values import NOON, busy_plan, make_change, make_snapshot

from pinner.service.local import LocalService, ServiceParts
from pinner.service.reconcile.reconciler import Reconciler


@pytest.fixture
def service(parts: ServiceParts) -> LocalService:
    return parts.service


@pytest.fixture
def reconciler(parts: ServiceParts) -> Reconciler:
    return parts.reconciler


@pytest.fixture
def plan(store):
    """Three changes of processes 100, 110 and 120, from 0-3 to 1, 2 and 3."""
    basis = store.snapshots.add(make_snapshot())
    made = busy_plan("plan-3", basis, (make_change(90 + 10 * n, after=str(n), threads=2) for n in (1, 2, 3)))
    store.plans.add(made, NOON)
    return made
