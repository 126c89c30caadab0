"""Records the scheduler's events (trace/ftrace.rst) in an own trace instance, with a locked folder: the kernel releases
the lock of a killed process, and the next trace removes the folder."""

import fcntl
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pinner.host.kernel import files
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Busy, NotPermitted
from pinner.model.outcome.blame import Migration, SchedEvent, Switch, Wakeup

MOUNTS = ("sys/kernel/tracing", "sys/kernel/debug/tracing")
EVENTS = ("sched_switch", "sched_wakeup", "sched_wakeup_new", "sched_migrate_task")
BUFFER_KIB = 4096
"""Each CPU's buffer holds about 50,000 events; the kernel replaces the oldest."""
BUFFERS_KIB = 32 * BUFFER_KIB
"""The buffers of all CPUs: they cannot be swapped out, and each event takes 4 us to read."""
_PREFIX = "pinner-"

_LINE = re.compile(r" \[(\d+)\] .{4,6}\s+(\d+\.\d+): (\w+): (.*)", re.DOTALL)
_SWITCH = re.compile(
    # A name has at most 15 characters, so none can contain what follows it.
    r"prev_comm=.{0,15} prev_pid=(\d+) prev_prio=-?\d+ prev_state=(\S+) ==> "
    r"next_comm=(.{0,15}) next_pid=(\d+) next_prio",
    re.DOTALL,
)
_WAKEUP = re.compile(r"comm=.{0,15} pid=(\d+) prio=-?\d+ target_cpu=(\d+)", re.DOTALL)
_MIGRATION = re.compile(r"comm=.{0,15} pid=(\d+) prio=-?\d+ orig_cpu=\d+ dest_cpu=(\d+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Trace:
    events: Iterator[SchedEvent]
    """The events by time, read one by one: a busy host has millions."""
    end: float
    seconds: float
    lost: int


@contextmanager
def record(root: Path, cpus: CpuSet, seconds: float, sleep: Callable[[float], None] = time.sleep) -> Iterator[Trace]:
    """Events can be read until the context ends. Raises NotPermitted; Busy where the kernel makes no more traces."""
    with _instance(root) as folder:
        _write(folder / "tracing_cpumask", _mask(cpus))
        for cpu in cpus:
            with suppress(NotPermitted):  # a CPU that is offline has no buffer, and no events
                _write(folder / f"per_cpu/cpu{cpu}/buffer_size_kb", str(min(BUFFER_KIB, BUFFERS_KIB // len(cpus))))
        _write(folder / "trace_clock", "mono")
        for event in EVENTS:
            _write(folder / "events/sched" / event / "enable", "1")
        begin = time.monotonic()
        sleep(seconds)
        _write(folder / "tracing_on", "0")
        end = time.monotonic()
        lost = sum(_overrun(folder, cpu) for cpu in cpus)
        with open(files.open_file(folder / "trace", os.O_RDONLY), "rb") as lines:  # noqa: PTH123 - Busy without a descriptor
            yield Trace(parse(map(files.decode, lines)), end, end - begin, lost)


def parse(lines: Iterable[str]) -> Iterator[SchedEvent]:
    """A thread's name may contain a line's end."""
    begun = ""
    for line in lines:
        text = line
        if (match := _LINE.search(line)) is None and begun:
            text = begun + line
            match = _LINE.search(text)
        if match is None:
            continue
        if event := _event(int(match[1]), float(match[2]), match[3], match[4]):
            yield event
        begun = "" if event else text


def _event(cpu: int, at: float, name: str, fields: str) -> SchedEvent | None:
    if name == "sched_switch" and (match := _SWITCH.match(fields)):
        return Switch(at, cpu, int(match[1]), match[2].startswith("R"), int(match[4]), match[3])
    if name.startswith("sched_wakeup") and (match := _WAKEUP.match(fields)):
        return Wakeup(at, int(match[1]), int(match[2]))
    if name == "sched_migrate_task" and (match := _MIGRATION.match(fields)):
        return Migration(at, int(match[1]), int(match[2]))
    return None


@contextmanager
def _instance(root: Path) -> Iterator[Path]:
    remove_left(root)
    folder = _mount(root) / "instances" / f"{_PREFIX}{os.getpid()}-{time.monotonic_ns()}"
    try:
        folder.mkdir()
        lock = files.open_file(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise Busy("the kernel's tracing", f"no instance can be made ({error.strerror})", overdue=False) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder
    finally:
        with suppress(OSError):
            folder.rmdir()
        os.close(lock)


def remove_left(root: Path) -> None:
    """Removes the instances of killed processes, which the kernel would fill for ever."""
    for mount in MOUNTS:
        instances = root / mount / "instances"
        for name in files.names(instances):
            if name.startswith(_PREFIX):
                with suppress(OSError):
                    _remove_unlocked(instances / name)


def _remove_unlocked(folder: Path) -> None:
    lock = files.open_file(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder.rmdir()
    finally:
        os.close(lock)


def _mount(root: Path) -> Path:
    for mount in MOUNTS:
        if (root / mount / "instances").is_dir():
            return root / mount
    why = "tracefs is not mounted, or this user may not read it: as root, mount -t tracefs nodev /sys/kernel/tracing"
    raise NotPermitted("trace the scheduler", why)


def _write(file: Path, value: str) -> None:
    try:
        file.write_text(value)
    except OSError as error:
        raise NotPermitted("trace the scheduler", f"{file} cannot be written: {error.strerror}") from None


def _mask(cpus: CpuSet) -> str:
    mask = sum(1 << cpu for cpu in cpus)
    words = []
    while True:
        words.append(f"{mask & 0xFFFFFFFF:08x}")
        mask >>= 32
        if not mask:
            return ",".join(reversed(words))


def _overrun(folder: Path, cpu: int) -> int:
    text = files.text(folder / f"per_cpu/cpu{cpu}/stats") or ""
    match = re.search(r"^(?:overrun|dropped events): ([1-9]\d*)", text, re.MULTILINE)
    return int(match[1]) if match else 0
