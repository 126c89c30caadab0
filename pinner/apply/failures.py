"""The groups of a run that failed, in words."""

from collections.abc import Collection

from pinner.model.journal import Entry

NAMED = 16
"""The largest number of guests and processes that a run's error names. The run's entries show all of them."""


def summary(failures: Collection[tuple[Entry, str]], groups: int) -> str:
    """The error of a run with these failures: each group's change that failed, and its error. ``groups`` is the number
    of all groups."""
    reasons = [_reason(entry, error) for entry, error in failures]
    more = f"; and {len(reasons) - NAMED} more" if len(reasons) > NAMED else ""
    return f"{len(reasons)} of {groups} guests and processes are not placed: {'; '.join(reasons[:NAMED])}{more}"


def _reason(failed: Entry, error: str) -> str:
    target = str(failed.change.target)
    return error if error.startswith(target) else f"{target}: {error}"
