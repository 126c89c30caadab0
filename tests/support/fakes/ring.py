"""A history of measures as a test wants it: a function of the subject, the series and the time."""

from collections.abc import Callable
from datetime import UTC, datetime

from pinner.model.outcome.measures import HOST, PING_SERIES, History, series_of

Value = Callable[[str, str, datetime], float | None]
"""Returns the value of a series (subject, name) at a time; None: not measured."""


class Ring:
    """The histories of a host and its guests, as an agent returns them: steps end at multiples of their length.

    No guest is pinged."""

    def __init__(self, guests: dict[str, str], value: Value) -> None:
        """``guests`` are names by UUID."""
        self._subjects = {HOST: "", **guests}
        self._value = value

    def __call__(
        self, begin: datetime, end: datetime, step: int, subject: str, series: tuple[str, ...] = ()
    ) -> tuple[History, ...]:
        first = int(begin.timestamp()) // step * step + step
        times = [datetime.fromtimestamp(at, UTC) for at in range(first, int(end.timestamp()) + 1, step)]
        return tuple(
            History(
                each,
                name,
                datetime.fromtimestamp(first, UTC),
                step,
                {name: tuple(self._value(each, name, at) for at in times) for name in names},
            )
            for each, name in self._subjects.items()
            if subject in ("", each) and (names := self._names(each, series))
        )

    @staticmethod
    def _names(subject: str, series: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(each.name for each in series_of(subject, series) if each.name not in PING_SERIES)
