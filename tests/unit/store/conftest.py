import pytest

from pinner.store import schema
from pinner.store.engine import connect


@pytest.fixture
def engine(tmp_path):
    engine = connect(f"sqlite:///{tmp_path}/db/pinner.sqlite")
    schema.ensure(engine)
    yield engine
    engine.dispose()
