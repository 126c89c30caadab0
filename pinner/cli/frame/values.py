"""Types of option values: each turns text into a value, or raises an error that says which values are valid."""

import argparse
import re
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pinner.model.cpuset import MAX_CPUS, CpuSet
from pinner.model.errors import Invalid
from pinner.model.page import MAX_LIMIT
from pinner.model.plan.objective import MOST_WEIGHT
from pinner.model.plan.request import MAX_BUDGET, MAX_MOVES, MOST_PERCENT

# The functions below import what only few commands use: a command imports only what it uses (see main).
if TYPE_CHECKING:
    from pinner.model.questions import NewGuests

_NUMBER = re.compile(r"\+?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,3})?", re.IGNORECASE)
_SPAN = re.compile(r"([1-9][0-9]{0,5})([hdw])")
_SIZE = re.compile(r"([0-9]{1,12})([KMGTkmgt])", re.ASCII)
_GUESTS = re.compile(r"(?:([0-9]{1,8})x)?([0-9]{1,8})(?::(.*))?", re.ASCII)
_MOST = 99_999_999
_LONGEST = timedelta(days=36_500)
_KIB_SHIFTS = {"K": 0, "M": 10, "G": 20, "T": 30}
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}


def whole(text: str, least: int, most: int, expected: str) -> int:
    """``expected`` names the bounds in the error."""
    # A number of thousands of digits would be refused by int() in other words.
    if not (text.isascii() and text.isdigit() and len(text.lstrip("0")) < 9 and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"{text!r} is not {expected}")
    return int(text)


def _number(text: str, most: float, expected: str) -> float:
    # float() also reads digits of other scripts, underscores and words such as nan.
    if not _NUMBER.fullmatch(text) or not (value := float(text)) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not {expected}")
    return value


percent = partial(_number, most=MOST_PERCENT, expected=f"a number of per cent of one CPU from 0 to {MOST_PERCENT}")
moves = partial(whole, least=0, most=MAX_MOVES, expected=f"a number of guests from 0 to {MAX_MOVES}")
limit = partial(whole, least=1, most=MAX_LIMIT, expected=f"a number from 1 to {MAX_LIMIT}")
cores = partial(whole, least=1, most=MAX_CPUS, expected=f"a number of cores from 1 to {MAX_CPUS}")
search_nodes = partial(whole, least=0, most=MAX_BUDGET, expected=f"a number of search nodes from 0 to {MAX_BUDGET}")
vcpus = partial(whole, least=1, most=MAX_CPUS, expected=f"a number of vCPUs from 1 to {MAX_CPUS}")
rounds = partial(whole, least=1, most=_MOST, expected="a number from 1 on")
node = partial(whole, least=0, most=_MOST, expected="the number of a NUMA node")
port = partial(whole, least=0, most=65535, expected="a port from 0 to 65535")
"""0 selects a free port."""


def seconds(text: str) -> float:
    from pinner.model.snapshot import MAX_SAMPLE_SECONDS

    return _number(text, MAX_SAMPLE_SECONDS, f"a number of seconds from 0 to {MAX_SAMPLE_SECONDS:g}")


def weight(text: str) -> tuple[str, float]:
    """A term of the objective, which the request checks, and its weight."""
    name, _, number = text.partition("=")
    if not _NUMBER.fullmatch(number) or float(number) > MOST_WEIGHT:
        expected = f"TERM=NUMBER with a number from 0 to {MOST_WEIGHT:.0f}, such as extra_l3=2"
        raise argparse.ArgumentTypeError(f"{text!r} is not {expected}")
    return name, float(number)


def cpu_list(text: str) -> CpuSet:
    try:
        if cpus := CpuSet.parse(text):
            return cpus
    except Invalid as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    raise argparse.ArgumentTypeError(f"{text!r} names no CPU")


def parts_on(text: str) -> tuple[CpuSet, CpuSet]:
    """Numbers of vCPUs or iothreads, and CPUs for each of them: 0=6, or 0-3=8-11."""
    numbers, equals, cpus = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not NUMBERS=CPUS, such as 0=6 or 0-3=8-11")
    return cpu_list(numbers), cpu_list(cpus)


def device_cpus(text: str) -> tuple[str, str]:
    """A device and a CPU list, which the request checks."""
    name, _, cpus = text.partition("=")
    if not (name and cpus):
        raise argparse.ArgumentTypeError(f"{text!r} is not DEVICE=CPUS, such as ens1=3")
    return name, cpus


def trace_seconds(text: str) -> float:
    from pinner.model.outcome.blame import MAX_SECONDS

    expected = f"a number of seconds above 0 and up to {MAX_SECONDS:g}"
    if not (length := _number(text, MAX_SECONDS, expected)):
        raise argparse.ArgumentTypeError(f"{text!r} is not {expected}")
    return length


def watch_seconds(text: str) -> int:
    """The text has a unit: seconds or minutes."""
    from pinner.model.run.journal import MAX_WATCH_SECONDS, MIN_WATCH_SECONDS

    match = re.fullmatch(r"([1-9][0-9]{0,3})([sm])", text, re.ASCII)
    length = int(match[1]) * (60 if match[2] == "m" else 1) if match else 0
    if not MIN_WATCH_SECONDS <= length <= MAX_WATCH_SECONDS:
        limits = f"from {MIN_WATCH_SECONDS}s to {MAX_WATCH_SECONDS // 60}m"
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 30s or 2m, {limits}")
    return length


def names(text: str) -> tuple[str, ...]:
    """The text is NAME[,NAME...]."""
    return tuple(text.split(","))


def probe_windows(text: str) -> int:
    from pinner.model.outcome.outcome import MAX_WINDOWS, MIN_WINDOWS

    return whole(text, MIN_WINDOWS, MAX_WINDOWS, f"a number of windows from {MIN_WINDOWS} to {MAX_WINDOWS}")


def tournament_windows(text: str) -> int:
    from pinner.model.outcome.outcome import BLOCK

    windows = probe_windows(text)
    if windows % BLOCK:
        raise argparse.ArgumentTypeError(f"{text!r} is not a multiple of {BLOCK}")
    return windows


def window_seconds(text: str) -> int:
    from pinner.model.outcome.outcome import MAX_SECONDS, MIN_SECONDS

    return whole(text, MIN_SECONDS, MAX_SECONDS, f"a number of seconds from {MIN_SECONDS} to {MAX_SECONDS}")


def span(text: str) -> timedelta:
    """A time up to now: a number of minutes, hours, days or weeks."""
    match = re.fullmatch(r"([1-9][0-9]{0,5})([mhdw])", text)
    length = int(match[1]) * (timedelta(minutes=1) if match[2] == "m" else _UNITS[match[2]]) if match else None
    if length is None or length > _LONGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time span such as 30m, 6h, 2d or 4w, at most 36500d")
    return length


def memory(text: str) -> int:
    """KiB; the text has the unit K, M, G or T (powers of 1024)."""
    from pinner.model.questions import MAX_MEMORY_KIB

    match = _SIZE.fullmatch(text)
    if not match or (kib := int(match[1]) << _KIB_SHIFTS[match[2].upper()]) > MAX_MEMORY_KIB:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 512M or 16G, at most 1024T")
    return kib


def new_guests(text: str) -> "NewGuests":
    """The text is [COUNTx]VCPUS[:MEMORY]."""
    from pinner.model.questions import GuestShape, NewGuests

    expected = f"{text!r} is not [COUNTx]VCPUS[:MEMORY], such as 3x8:16G"
    if not (match := _GUESTS.fullmatch(text)):
        raise argparse.ArgumentTypeError(expected)
    count, number, size = match.groups()
    try:
        return NewGuests(GuestShape(vcpus(number), 0 if size is None else memory(size)), int(count or 1))
    except (argparse.ArgumentTypeError, Invalid) as error:
        raise argparse.ArgumentTypeError(f"{expected} ({error})") from None


def path(text: str) -> Path:
    """An empty path would mean the working folder."""
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not a path")
    return Path(text)


def moment(text: str) -> datetime:
    """A date, or a date and time (ISO 8601); local time unless it names a zone."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 2026-11-21 or 2026-11-21T09:30") from None


def expiry(text: str) -> timedelta | datetime:
    """A number of days, hours or weeks (90d, 12h, 4w), or a moment."""
    match = _SPAN.fullmatch(text)
    try:
        return int(match[1]) * _UNITS[match[2]] if match else moment(text)
    except (argparse.ArgumentTypeError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time span such as 90d, 12h or 4w, or a date such as 2027-01-31"
        ) from None
