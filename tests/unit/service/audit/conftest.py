import pytest
from support.store.forgery import copy
from support.store.trail import Installation

from pinner.service.audit import audit_trail
from pinner.store.repositories import open_store


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    folder = tmp_path_factory.mktemp("empty")
    with open_store(f"sqlite:///{folder}/empty.sqlite"):
        pass
    copy(folder / "empty.sqlite", folder / "copy.sqlite")
    return folder / "copy.sqlite"


@pytest.fixture
def pinner(tmp_path, monkeypatch, empty):
    monkeypatch.setattr(audit_trail, "RECHECK_SECONDS", 0.0)
    made = Installation(tmp_path / "one", empty)
    yield made
    made.stop()


@pytest.fixture
def used(pinner):
    """Two applies and a rollback; the agent has seen the centre's head."""
    pinner.rollback(pinner.apply())
    pinner.apply()
    pinner.exchange()
    return pinner
