"""Values for the history."""

from datetime import UTC, datetime, timedelta

from pinner.model.outcome.measures import HOST, Measured
from pinner.store.history import HistoryFiles

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)

GUEST = "6f1f5d6e-0000-4000-8000-000000000001"


def fill(history: HistoryFiles, seconds: int, value: float | None = 7.0, begin: datetime = BEGIN) -> datetime:
    """Write a value of the pressure each 5 seconds; returns the time of the last one."""
    for second in range(5, seconds + 1, 5):
        history.write([Measured(HOST, "", {"pressure": value})], begin + timedelta(seconds=second))
    return begin + timedelta(seconds=seconds)
