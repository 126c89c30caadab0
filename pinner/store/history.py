"""The history of measures on the agent's disk: an RRDtool file of fixed size for each subject, whose newest values
replace the oldest. A file grows only by a new series, so a full disk prevents only new files and these series."""

import errno
import logging
import os
import re
import shutil
from collections.abc import Collection, Iterable, Mapping, Set
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import rrdtool  # type: ignore[import-not-found, import-untyped, unused-ignore]

from pinner.model.errors import Invalid, NotFound, StoreUnavailable
from pinner.model.outcome.measures import HOST, LOSS, PING_SERIES, ROWS, History, Measured, loss_share, series_of
from pinner.repeated import Repeated

LOG = logging.getLogger(__name__)

_FAILURES = (rrdtool.OperationalError, rrdtool.ProgrammingError, SystemError)
"""RRDtool raises SystemError for a damaged file whose names are no text."""

_NO_MEMORY = re.compile("alloc|out of memory|lock")
_OF_THE_KERNEL = frozenset(map(os.strerror, errno.errorcode))
"""How RRDtool's message ends when the kernel refused a call."""

_SUBJECT = re.compile(r"host|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FINEST = min(ROWS)
_KEPT_SECONDS = max(step * rows for step, rows in ROWS.items())
_OPTIONAL = PING_SERIES
"""A file has them from their first value on: most guests are not pinged."""
_LOSS_OF = ("drops", "packets_in", "packets_out")
ENDED_FILES = 100
"""Files of ended guests, 52 MiB. Test systems start hundreds a day; a run's outcome reads the files within minutes."""
ROOM = 1 << 20
"""Free bytes without which no file is copied, each 5 s, for a series that it lacks; a copy has 0.7 MiB."""
_SMALL_STEP_SECONDS = 60
"""If the clock was set back by less, nothing is kept until it has caught up: a month's values are worth more."""
_EARLIEST = datetime(1980, 1, 1, tzinfo=UTC)
"""RRDtool refuses an earlier time, or takes it for a distance from now."""
_KNOWN = 0.5
"""The share of a coarse step that must be known."""


class HistoryFiles:
    """One thread writes; others may read meanwhile."""

    def __init__(self, folder: Path) -> None:
        """For its owner alone."""
        self._folder = folder
        self._failures = Repeated(LOG)
        self._checked: set[str] = set()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def write(self, measured: Iterable[Measured], at: datetime) -> None:
        """The interval ended at ``at``. What cannot be written is logged and lost."""
        second = int(at.timestamp())
        for count in measured:
            try:
                self._write_or_begin_anew(count, second)
            except (*_FAILURES, OSError) as error:
                why = str(error) or "RRDtool does not say why; the disk may be full"
                self._failures.warn("the measures of %s are not kept: %s", count.name or count.subject, why)

    def read(
        self, subject: str, begin: datetime, end: datetime, step: int, name: str = "", series: Collection[str] = ()
    ) -> History:
        """Steps of ``step`` seconds (of ROWS); only ``series`` if given. Raises NotFound for a subject without a
        history, Invalid, and StoreUnavailable for a damaged file."""
        if step not in ROWS:
            raise Invalid("step", step, f"one of {', '.join(map(str, ROWS))}")
        file = self._file(subject)
        if not file.exists():
            raise NotFound("measures", subject, self.subjects())
        if int(begin.timestamp()) >= int(end.timestamp()):
            raise Invalid("from", begin.isoformat(), f"a time before {end.isoformat()}")
        first = int(max(begin, _EARLIEST).timestamp())
        last = max(int(end.timestamp()), first + 1)
        bounds = ("--start", str(first), "--end", str(last - 1), "--resolution", str(step))
        try:
            (start, _, found_step), names, rows = rrdtool.fetch(str(file), "AVERAGE", *bounds)
        except _FAILURES as error:
            raise StoreUnavailable(str(file), str(error)) from None
        columns = zip(*rows, strict=True) if rows else [()] * len(names)
        values = dict(zip(names, columns, strict=True))
        if values.keys() >= set(_LOSS_OF):
            values[LOSS] = tuple(map(loss_share, *(values[key] for key in _LOSS_OF)))
        values = {key: column for key, column in values.items() if not series or key in series}
        return History(subject, name, datetime.fromtimestamp(start + found_step, UTC), found_step, values)

    def subjects(self, since: datetime = _EARLIEST) -> tuple[str, ...]:
        """Those with a value of this time or later, also ended guests; HOST first."""
        first = since.timestamp()
        names = sorted(file.stem for file in self._folder.glob("*.rrd") if _modified(file) >= first)
        return tuple(sorted(names, key=lambda name: name != "host"))

    def purge(self, at: datetime, running: Set[str]) -> None:
        """Delete the files older than the history, and of those outside ``running`` all but the newest ENDED_FILES,
        also those put aside, and parts that a killed process left. With an empty ``running`` (libvirt may not have
        answered), only the age counts."""
        self._checked.clear()
        now, own = at.timestamp(), {HOST, *running}
        changed = {file: _modified(file) for file in self._folder.glob("*.rrd*")}
        ended = [file for file in changed if file.name.partition(".")[0] not in own]
        # A time to come is that of a clock that was wrong: it must not push out what was measured since.
        ended.sort(key=lambda file: changed[file] if changed[file] <= now else 0.0, reverse=True)
        old = [file for file, second in changed.items() if now - second > _KEPT_SECONDS]
        for file in (*old, *(ended[ENDED_FILES:] if running - {HOST} else ())):
            with suppress(OSError):
                file.unlink()

    def _write_or_begin_anew(self, measured: Measured, second: int) -> None:
        file = self._file(measured.subject)
        try:
            self._write(file, measured, second)
        except _FAILURES as error:
            if not _is_damaged(file, error):
                raise
            _put_aside(file, str(error))
            self._write(file, measured, second)

    def _write(self, file: Path, measured: Measured, second: int) -> None:
        newest = _newest(file, second)
        if newest is not None and measured.subject not in self._checked and not _has_equal_steps(file):
            _put_aside(file, "it has other steps")
            newest = None
        if newest is None:
            _create(file, measured.subject, second)
        elif newest >= second:
            return  # the step has a value already, or the clock was set back a little
        names, more = _always(measured.subject), [name for name in _OPTIONAL if measured.rates.get(name) is not None]
        if more or measured.subject not in self._checked:
            wanted, names = names + more, self._added(file, names + more)
            if names == wanted:
                self._checked.add(measured.subject)
        values = [_number(measured.rates, name) for name in names]
        rrdtool.update(str(file), "--template", ":".join(names), ":".join([str(second), *values]))

    def _added(self, file: Path, names: list[str]) -> list[str]:
        """RRDtool writes a larger copy for a new series, and does not say that the disk is full."""
        lacking = _lacking(rrdtool.info(str(file)), names)
        if lacking and shutil.disk_usage(self._folder).free >= ROOM:
            rrdtool.tune(str(file), *map(_source, lacking))
            file.chmod(0o600)
            lacking = _lacking(rrdtool.info(str(file)), names)
        if lacking:
            self._failures.warn("%s: no room for %s; the disk may be full", file, ", ".join(lacking))
        return [name for name in names if name not in lacking]

    def _file(self, subject: str) -> Path:
        """Raises Invalid for a name that could lead out of the folder."""
        if not _SUBJECT.fullmatch(subject):
            raise Invalid("subject", subject, "host, or the UUID of a guest")
        return self._folder / f"{subject}.rrd"


def _number(rates: Mapping[str, float | None], name: str) -> str:
    value = rates.get(name)
    return "U" if value is None else f"{value:.6g}"


def _is_damaged(file: Path, error: BaseException) -> bool:
    """A moment without a descriptor or memory is no reason for a new file."""
    if not file.exists():
        return False
    while error.__cause__:
        error = error.__cause__
    if isinstance(error, UnicodeDecodeError) or not file.stat().st_size:
        return True
    why = str(error).replace(str(file), "")
    is_of_the_moment = not why or why.rpartition(": ")[2] in _OF_THE_KERNEL or _NO_MEMORY.search(why)
    return isinstance(error, _FAILURES) and not is_of_the_moment


def _newest(file: Path, second: int) -> int | None:
    """The newest value's second; None without a file. One with a clock far ahead is put aside: it takes no values."""
    if not file.exists():
        return None
    newest = int(rrdtool.last(str(file)))
    if newest < second + _SMALL_STEP_SECONDS:
        return newest
    _put_aside(file, "its values are newer than now")
    return None


def _has_equal_steps(file: Path) -> bool:
    info = rrdtool.info(str(file))
    archives = [(info.get(f"rra[{at}].pdp_per_row"), info.get(f"rra[{at}].rows")) for at in range(len(ROWS))]
    return info["step"] == _FINEST and archives == [(step // _FINEST, rows) for step, rows in ROWS.items()]


def _put_aside(file: Path, why: str) -> None:
    aside = file.with_name(f"{file.name}.old")
    if aside.exists():  # the first one has most values; of the later ones the last is kept, so that the disk lasts
        aside = file.with_name(f"{file.name}.old2")
    LOG.warning("the history %s is put aside as %s: %s", file, aside.name, why)
    file.replace(aside)


def _modified(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


def _always(subject: str) -> list[str]:
    return [series.name for series in series_of(subject) if series.name not in (LOSS, *_OPTIONAL)]


def _source(name: str) -> str:
    return f"DS:{name}:GAUGE:{3 * _FINEST}:0:U"


def _lacking(info: Mapping[str, object], names: Iterable[str]) -> list[str]:
    return [name for name in names if f"ds[{name}].type" not in info]


def _create(file: Path, subject: str, second: int) -> None:
    sources = [_source(name) for name in _always(subject)]
    archives = [f"RRA:AVERAGE:{_KNOWN}:{step // _FINEST}:{rows}" for step, rows in ROWS.items()]
    rrdtool.create(str(file), "--step", str(_FINEST), "--start", str(second - _FINEST), *sources, *archives)
    file.chmod(0o600)
