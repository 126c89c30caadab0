"""The agent of an empty machine, and its journal."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from support.fakes.empty_machine import agent_of
from support.fakes.in_memory_host import InMemoryHost

from pinner.agent.local import LocalAgent
from pinner.store.journal.journal import StoredJournal


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[StoredJournal]:
    with closing(StoredJournal(tmp_path / "agent")) as journal:
        yield journal


@pytest.fixture
def trusted_by_nobody(journal: StoredJournal) -> LocalAgent:
    """The agent of an empty machine."""
    return agent_of(journal, InMemoryHost())
