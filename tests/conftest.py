"""All tests: the examples of the property tests are the same in each run, so that a change alone can make them fail.

``--hypothesis-profile random`` takes new examples; ``--hypothesis-seed N`` repeats those. No example has a deadline:
other work on the machine makes one slow.
"""

import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from support import migrated, slow

from pinner.store import schema

for name, is_fixed in (("fixed", True), ("random", False)):
    settings.register_profile(name, derandomize=is_fixed, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fixed")


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the plugin of slow tests; a conftest below the root folder cannot declare one."""
    pluginmanager.register(slow)


def pytest_configure() -> None:
    """Let a SIGTERM end the tests as Ctrl-C does: their fixtures end the libvirtds and guests that they started."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def newest_schema() -> Iterator[None]:
    """An empty SQLite database gets the newest schema without the migrations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "upgrade", migrated.upgrade)
        yield


@pytest.fixture
def migrations(monkeypatch: pytest.MonkeyPatch) -> None:
    """For a test of the migrations: each empty database gets the newest schema by them."""
    monkeypatch.setattr(schema, "upgrade", migrated.migrate)
