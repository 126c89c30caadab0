import pytest

from pinner.store.repositories import open_store


@pytest.fixture
def store(tmp_path):
    with open_store(f"sqlite:///{tmp_path}/pinner.sqlite") as made:
        yield made
