import pytest

from pinner.store.journal.journal import Journal


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path)
    yield journal
    journal.close()
