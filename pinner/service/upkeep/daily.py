"""Work that a server does by itself once a day."""

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pinner import whole_file
from pinner.model.errors import PinnerError
from pinner.worker import Worker

LOG = logging.getLogger(__name__)

FIRST_SECONDS = 60.0
"""The first time is soon after the start, because a server may never run for a whole day."""

DAY_SECONDS = 86400.0

AHEAD = timedelta(days=14)
"""A clock that is further ahead of the last daily work is not believed at once. A token is kept for 90 days after its
end, so a smaller error deletes no valid one."""


_ALMOST_A_DAY = timedelta(hours=23)
"""The thread waits by another clock than that of the calendar."""


class Calendar:
    """Tells a wrong clock from a host that was off, by a file with two times: the last believed one, and the time by
    the clock since when another is waited for.

    What is deleted is gone for good, so a clock that is far ahead counts only after some days, in which somebody can
    set it. A clock that is far behind counts after a day: it must not make the right one look ahead.
    """

    def __init__(self, file: Path, now: Callable[[], datetime]) -> None:
        self._file = file
        self._now = now
        self._times()  # before the first daily work: a clock can be wrong at the second start

    def today(self) -> datetime | None:
        """The time by which old rows may be deleted; None, with a warning, where the clock may be wrong."""
        now = self._now()
        if (times := self._times()) is None:
            LOG.warning("nothing is deleted today: %s, the time of the last daily work, could not be read", self._file)
            return None
        believed, since = times
        if abs(now - believed) <= AHEAD:
            return now if self._write(now, now) else None
        waited = now - since
        if _ALMOST_A_DAY <= waited <= AHEAD:
            believed, since = min(believed + AHEAD, now), now
        elif not timedelta() <= waited <= AHEAD:
            since = now
        if not self._write(believed, since):
            return None
        if now - believed <= AHEAD:
            return now
        LOG.warning(
            "nothing is deleted today: the clock says %s, which is far ahead of %s, the time of the last daily work. "
            "Set the clock; if it is right, wait for %d days, or delete old rows by pinner-manage db purge",
            *(f"{at:%Y-%m-%d %H:%M}" for at in (now, believed)),
            -((believed + AHEAD - now) // (AHEAD - timedelta(seconds=DAY_SECONDS))),
        )
        return None

    def _times(self) -> tuple[datetime, datetime] | None:
        try:
            believed, since = map(datetime.fromisoformat, self._file.read_text(encoding="ascii").split())
            return believed.astimezone(UTC), since.astimezone(UTC)
        except (OSError, ValueError, OverflowError):
            now = self._now()
            self._write(now, now)
            return None

    def _write(self, believed: datetime, since: datetime) -> bool:
        try:
            whole_file.replace(self._file, f"{believed.isoformat()}\n{since.isoformat()}\n".encode())
        except OSError as error:
            LOG.warning("nothing is deleted: the time of the daily work cannot be written: %s", error)
            return False
        return True


class Daily(Worker):
    def __init__(self, name: str, work: Callable[[datetime], None], calendar: Calendar) -> None:
        super().__init__(name)  # without a limit: a purge of a large database takes as long as it takes
        self._work = work
        self._calendar = calendar

    def _repeat(self) -> None:
        wait = FIRST_SECONDS
        while not self._stop.wait(wait):
            wait = DAY_SECONDS
            try:
                if today := self._calendar.today():
                    self._work(today)
            except PinnerError as error:
                LOG.warning("%s failed, next attempt in a day: %s", self._thread.name, error)
            except Exception:
                LOG.exception("%s failed, next attempt in a day", self._thread.name)
