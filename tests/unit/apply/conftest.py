import pytest

from pinner.store.journal.journal import StoredJournal


@pytest.fixture
def journal(tmp_path):
    journal = StoredJournal(tmp_path)
    yield journal
    journal.close()
