"""All tests: the examples of the property tests are the same in each run, so that a change alone can make them fail.

``--hypothesis-profile random`` takes new examples; ``--hypothesis-seed N`` repeats those.
"""

import signal

from hypothesis import settings

settings.register_profile("fixed", derandomize=True)
settings.register_profile("random", derandomize=False)
settings.load_profile("fixed")


def pytest_configure() -> None:
    """Let a SIGTERM end the tests as Ctrl-C does: their fixtures end the libvirtds and guests that they started."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
