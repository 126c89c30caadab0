"""The parts of a composed service that tests of the service use. A test module provides ``parts``."""

import pytest

from pinner.service.local import LocalService, ServiceParts
from pinner.service.reconcile.reconciler import Reconciler


@pytest.fixture
def service(parts: ServiceParts) -> LocalService:
    return parts.service


@pytest.fixture
def reconciler(parts: ServiceParts) -> Reconciler:
    return parts.reconciler
