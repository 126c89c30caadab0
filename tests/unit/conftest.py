from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta

import pytest
from support.clock import Clock
from support.store.database_servers import ABOVE_THE_STORE, Databases

from pinner.store.repositories import open_store


@pytest.fixture
def clock():
    return Clock(timedelta(milliseconds=1))


@pytest.fixture(scope="session")
def databases() -> Iterator[Databases]:
    """The database servers of this process: each starts once, for the first test that needs it."""
    with ExitStack() as stack:
        yield Databases(stack)


@pytest.fixture(params=ABOVE_THE_STORE)
def database(request, databases, tmp_path) -> str:
    """The URL of an empty database of the newest schema: SQLite, and with ``--all`` PostgreSQL and MariaDB."""
    return databases.fresh(request.param, tmp_path)


@pytest.fixture
def store(database):
    with open_store(database) as made:
        yield made
