from datetime import timedelta

import pytest
from support.clock import Clock

from pinner.store.repositories import open_store


@pytest.fixture
def clock():
    return Clock(timedelta(milliseconds=1))


@pytest.fixture
def store(tmp_path):
    with open_store(f"sqlite:///{tmp_path}/pinner.sqlite") as made:
        yield made
