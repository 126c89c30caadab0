import pytest
from support.store.database_servers import DATABASES

from pinner.store.database import schema
from pinner.store.database.engine import connect


@pytest.fixture(params=DATABASES)
def database(request, databases, tmp_path) -> str:
    """The URL of an empty database of the newest schema: SQLite, PostgreSQL and MariaDB."""
    return databases.fresh(request.param, tmp_path)


@pytest.fixture
def engine(database):
    engine = connect(database)
    schema.ensure(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def sqlite(tmp_path):
    """The engine of an SQLite database, for tests of SQLite itself."""
    engine = connect(f"sqlite:///{tmp_path}/db/pinner.sqlite")
    schema.ensure(engine)
    yield engine
    engine.dispose()
