"""The numbers of examples of property tests and of replays: a quarter in the fast set, all with ``--all``."""

from hypothesis import HealthCheck, settings

_WHOLE = 100
"""Hypothesis's own number of examples of a test."""
_FAST = 25


def load_profile(*, whole: bool) -> None:
    """Register the profiles ``fixed`` (the same examples in each run) and ``random`` (new ones), and load the first.

    No example has a deadline: other work on the machine makes one slow.
    """
    for name, is_fixed in (("fixed", True), ("random", False)):
        settings.register_profile(
            name,
            max_examples=_WHOLE if whole else _FAST,
            derandomize=is_fixed,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow],
        )
    settings.load_profile("fixed")


def examples(whole: int) -> int:
    """The number of examples for this run of a test that has ``whole`` of them with ``--all``."""
    return max(1, whole * settings.default.max_examples // _WHOLE)


def are_all() -> bool:
    """Whether this run takes all examples."""
    return settings.default.max_examples >= _WHOLE
