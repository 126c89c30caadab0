import pytest

from pinner.store import schema
from pinner.store.engine import connect


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
