"""All tests: the examples of the property tests are the same in each run, so that a change alone can make them fail.

``--hypothesis-profile random`` takes new examples; ``--hypothesis-seed N`` repeats those. No example has a deadline:
other work on the machine makes one slow.
"""

import signal

import pytest
from hypothesis import HealthCheck, settings
from support import needs, slow

for name, is_fixed in (("fixed", True), ("random", False)):
    settings.register_profile(name, derandomize=is_fixed, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fixed")


def pytest_addoption(pluginmanager: pytest.PytestPluginManager) -> None:
    """Register the plugins of slow tests and of rights; a conftest below the root folder cannot declare any."""
    for plugin in (slow, needs):
        pluginmanager.register(plugin)


def pytest_configure() -> None:
    """Let a SIGTERM end the tests as Ctrl-C does: their fixtures end the libvirtds and guests that they started."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
