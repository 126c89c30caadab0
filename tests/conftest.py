"""All tests: the examples of the property tests are the same in each run, so that a change alone can make them fail.

``--hypothesis-profile random`` takes new examples; ``--hypothesis-seed N`` repeats those. ``--all`` takes four times as
many.
"""

import gc
import signal
from collections.abc import Iterator

import pytest
from support import examples, needs, slow
from support.store import migrated

from pinner.store.database import engine, schema

_SYNCHRONOUS = engine.SYNCHRONOUS
_GARBAGE = 20_000
"""New objects between two looks for garbage. Python's 700 cost a tenth of the CPU time of the unit tests."""


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the plugins of slow tests and of rights; a conftest below the root folder cannot declare any."""
    for plugin in (slow, needs):
        pluginmanager.register(plugin)


@pytest.hookimpl(tryfirst=True)  # before Hypothesis loads the profile that the command line names
def pytest_configure(config: pytest.Config) -> None:
    """Choose the number of examples, and let a SIGTERM end the tests as Ctrl-C does: their fixtures end the libvirtds
    and guests that they started."""
    examples.load_profile(whole=config.getoption("all") or config.getoption("slow_of") is not None)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    gc.set_threshold(_GARBAGE)


def pytest_collection_finish() -> None:
    """Look for no garbage among the modules and tests themselves: they are a million objects, and stay."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def newest_schema() -> Iterator[None]:
    """An empty SQLite database gets the newest schema without the migrations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "upgrade", migrated.upgrade)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_waits_for_the_disk() -> Iterator[None]:
    """SQLite does not wait until the disk has the data of a transaction. A killed process loses nothing by it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "SYNCHRONOUS", "OFF")
        yield


@pytest.fixture
def durable(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test of that wait."""
    monkeypatch.setattr(engine, "SYNCHRONOUS", _SYNCHRONOUS)


@pytest.fixture
def migrations(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test of the migrations: each empty database gets the newest schema by them."""
    monkeypatch.setattr(schema, "upgrade", migrated.migrate)
