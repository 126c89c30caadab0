"""The kept measures of hosts, and who delays a guest now."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from pinner.model.errors import Invalid, NotFound
from pinner.model.outcome.blame import MAX_SECONDS, Blame
from pinner.model.outcome.measures import (
    GUEST_SERIES,
    HOST,
    MAX_VALUES,
    ROWS,
    History,
    Measures,
    Span,
    finest,
    require_series,
    series_of,
)
from pinner.service.hosts.hosts import Hosts

DEFAULT = timedelta(hours=1)
"""The length of a span without a beginning. No earlier time can be so long ago."""

_GUEST = "guest"

_EARLIEST = datetime.min.replace(tzinfo=UTC) + DEFAULT


class MeasureReader:
    def __init__(self, hosts: Hosts, now: Callable[[], datetime]) -> None:
        self._hosts = hosts
        self._now = now

    def blame(self, host: str, guest: str, seconds: float) -> Blame:
        if not 0 < seconds <= MAX_SECONDS:
            raise Invalid("seconds", seconds, f"a number of seconds above 0 and up to {MAX_SECONDS:g}")
        running = self._hosts.observe(host, 0.0).running_guest(guest)
        return self._hosts.blame(host, running.uuid, seconds)

    def measures(self, host: str, span: Span, guest: str | None = None, series: tuple[str, ...] = ()) -> Measures:
        series = tuple(dict.fromkeys(series))
        require_series(series)
        of_guest = series_of(_GUEST, series)
        if guest is not None and not of_guest:
            require_series(series, GUEST_SERIES)
        now = self._now()
        end = min(span.end or now, now)
        begin = span.begin or max(end, _EARLIEST) - DEFAULT
        if begin >= end:
            raise Invalid("from", begin.isoformat(), f"a time before {end.isoformat()}")
        step = span.step or finest(begin, now)
        if (end - begin).total_seconds() / step > MAX_VALUES:
            raise Invalid("step", step, f"a longer step, or a shorter span: at most {MAX_VALUES} values of each series")
        if guest is not None:
            histories = self._of_guest(host, begin, end, step, guest, series)
        else:
            step, histories = self._read(host, begin, end, step, series, coarser=span.step is None)
        return Measures(host, step, of_guest, series_of(HOST, series), histories)

    def _of_guest(
        self, host: str, begin: datetime, end: datetime, step: int, guest: str, series: tuple[str, ...]
    ) -> tuple[History, ...]:
        try:
            # A guest may have the name that means the host.
            histories = self._hosts.agent(host).measures(begin, end, step, "" if guest == HOST else guest, series)
        except (NotFound, Invalid) as error:
            if isinstance(error, Invalid) and error.details["field"] != "subject":
                raise
            raise NotFound("measures of guest", guest) from None  # no id and no name of a guest that runs
        if not (
            histories := tuple(
                history for history in histories if history.subject != HOST and guest in (history.subject, history.name)
            )
        ):
            raise NotFound("measures of guest", guest)
        return histories

    def _read(
        self, host: str, begin: datetime, end: datetime, step: int, series: tuple[str, ...], *, coarser: bool
    ) -> tuple[int, tuple[History, ...]]:
        steps = [longer for longer in sorted(ROWS) if longer > step] if coarser else []
        try:
            return step, self._hosts.agent(host).measures(begin, end, step, "", series)
        except Invalid as error:
            if not steps or error.details["field"] != "step":
                raise
            return self._read(host, begin, end, steps[0], series, coarser=True)
