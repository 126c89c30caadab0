"""Measures the loads of all processes and threads between two samples, and reads again only those that ran: most sleep.
While the CPU clock of a process, or a thread's schedstat, stands still, its files say the same, except affinity and
policy, which others may change: system calls ask them."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from pinner.host.kernel import cpu_clocks, procfs
from pinner.host.kernel.cpu_clocks import Settings
from pinner.host.kernel.files import Folder, numbers, read
from pinner.host.kernel.procfs import HERTZ, PF_KTHREAD, VANISHED, Stat
from pinner.model.machine.process import Process, Thread

MAX_AGE = 60.0
"""Seconds. Of a sleeping process only its cgroup can change unnoticed."""


class StatSample(NamedTuple):
    """The time is in seconds of the caller's clock."""

    stat: bytes
    at: float


class KnownThread(NamedTuple):
    thread: Thread
    stat: bytes
    schedstat: bytes
    settings: Settings


class KnownProcess(NamedTuple):
    """A process without loads, when it had run for ``ran_ns``; ``read_at`` is in seconds of the caller's clock."""

    ran_ns: int
    read_at: float
    process: Process
    stat: bytes
    threads: Mapping[str, KnownThread]
    tids: list[int]
    settings: list[Settings]
    """The settings of each of ``tids``: a list is compared fast."""


Known = Mapping[str, KnownProcess]
"""The key is the process id."""

NOTHING: Known = MappingProxyType({})


def sample(
    root: Path, seconds: float, sleep: Callable[[float], None], clock: Callable[[], float]
) -> tuple[Process, ...]:
    """Loads are over ``seconds`` (0: none); ``clock`` is monotonic. The only ``immovable_reason`` is ``per-cpu``."""
    return Scanner(root).sample(seconds, sleep, clock)


class Scanner:
    """Takes samples again and again. Threads may share it, with one clock."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known = NOTHING

    def sample(self, seconds: float, sleep: Callable[[float], None], clock: Callable[[], float]) -> tuple[Process, ...]:
        sampler = Sampler(self._root, clock, self._known)
        if seconds > 0:
            sampler.first()
            sleep(seconds)
        processes = sampler.second()
        self._known = sampler.known
        return processes


class Sampler:
    """The first sample reads CPU times, the second all facts and the loads. A process's stat includes threads that
    ended in between. Files are opened relative to the process's folder: a new process of the same id is not mixed
    in."""

    def __init__(self, root: Path, clock: Callable[[], float] = time.monotonic, earlier: Known = NOTHING) -> None:
        self.known: dict[str, KnownProcess] = {}
        self._proc = f"{root}/proc"
        self._clock = clock
        self._has_clocks = cpu_clocks.are_of(root)
        oldest = clock() - MAX_AGE
        fresh = {pid: each for pid, each in earlier.items() if each.read_at > oldest}
        self._earlier: Known = fresh if self._has_clocks else NOTHING
        self._settings = cpu_clocks.SettingsReader()
        self._asleep: set[str] = set()
        """The first sample read nothing of them: they had not run since the earlier scan."""
        self._processes: dict[str, StatSample] = {}
        self._threads: dict[str, StatSample] = {}
        self._first_at: float | None = None

    def first(self) -> None:
        self._first_at = self._clock()
        for pid in numbers(self._proc):
            known = self._earlier.get(pid)
            if known and known.ran_ns == self._ran_ns(pid):
                self._asleep.add(pid)
                continue
            try:
                with Folder(f"{self._proc}/{pid}") as folder:
                    self._sample_process(folder, pid, known)
            except VANISHED:
                continue

    def second(self) -> tuple[Process, ...]:
        return tuple(process for pid in numbers(self._proc) if (process := self._process(pid)))

    def movable(self, *, kernel: bool = False) -> tuple[Thread, ...]:
        processes = (process for process in self.second() if process.kernel or not kernel)
        threads = (thread for process in processes for thread in process.threads)
        movable = (thread for thread in threads if thread.immovable_reason != "per-cpu")
        return tuple(sorted(movable, key=lambda thread: thread.tid))

    def _ran_ns(self, pid: str) -> int | None:
        return cpu_clocks.ran_ns(int(pid)) if self._has_clocks else None

    def _sample_process(self, folder: int, pid: str, known: KnownProcess | None) -> None:
        sample_ = self._processes[pid] = StatSample(read("stat", folder), self._clock())
        stat = procfs.parse_stat(sample_.stat)
        if self._is_alone(stat):
            self._threads[pid] = sample_
            return
        threads = known.threads if known and known.process.started == stat.started else {}
        for tid in numbers(f"{self._proc}/{pid}/task"):
            try:
                same = _same(threads.get(tid), procfs.optional(f"task/{tid}/schedstat", folder))
                self._threads[tid] = StatSample(same.stat if same else read(f"task/{tid}/stat", folder), self._clock())
            except OSError:
                continue

    def _process(self, pid: str) -> Process | None:
        ran = self._ran_ns(pid)
        known = self._earlier.get(pid)
        if known and known.ran_ns == ran and self._has_settings(known):
            self.known[pid] = known
            return known.process
        try:
            with Folder(f"{self._proc}/{pid}") as folder:
                return self._read_process(folder, pid, ran, known)
        except VANISHED:
            return None

    def _has_settings(self, known: KnownProcess) -> bool:
        ask = self._settings.read
        return [ask(tid) for tid in known.tids] == known.settings

    def _read_process(self, folder: int, pid: str, ran: int | None, known: KnownProcess | None) -> Process | None:
        at, data = self._clock(), read("stat", folder)
        stat = procfs.parse_stat(data)
        if known and known.process.started != stat.started:
            known = None
        kernel = bool(stat.flags & PF_KTHREAD)
        unit = procfs.parse_unit(procfs.optional("cgroup", folder))
        command = "" if kernel else procfs.command(folder)
        alone = self._is_alone(stat) and self._was_alone(pid, known)
        reader = self._thread_reader(folder, pid, known.threads if known else {}, data if alone else b"")
        threads = []
        for tid in (pid,) if alone else numbers(f"{self._proc}/{pid}/task"):
            try:
                threads.append(reader(tid))
            except VANISHED:
                continue
        if not threads:
            return None
        load = self._load(self._before(pid, known, self._processes.get(pid)), data, stat)
        now = tuple(thread for thread, _ in threads)
        process = Process(int(pid), stat.started, stat.name, command, unit, kernel, load, now)
        if ran is not None and all(each for _, each in threads):
            asleep = {str(each.thread.tid): each for _, each in threads if each}
            tids, settings = [each.tid for each in now], [each.settings for each in asleep.values()]
            self.known[pid] = KnownProcess(ran, at, _without_loads(process), data, asleep, tids, settings)
        return process

    def _thread_reader(
        self, folder: int, pid: str, earlier: Mapping[str, KnownThread], alone: bytes
    ) -> Callable[[str], tuple[Thread, KnownThread | None]]:
        """``alone`` is the stat file of a process that is one thread: also that of the thread."""

        def reader(tid: str) -> tuple[Thread, KnownThread | None]:
            below = "" if alone else f"task/{tid}/"
            # Before the other files: what changes between the reads must look changed to the next sampler.
            settings = self._settings.read(int(tid)) if self._has_clocks else None
            schedstat = procfs.optional(f"{below}schedstat", folder)
            known = earlier.get(tid)
            if (same := _same(known, schedstat)) and same.settings == settings:
                return same.thread, same
            # The affinity comes from the status file, which takes the kernel longer than all others.
            unmoved = known.thread if known and known.settings == settings else None
            files = procfs.thread_files(folder, below, tid, schedstat, alone, unmoved)
            load = self._load(self._before(pid, known, self._threads.get(tid)), files.data, files.stat)
            thread = replace(files.thread, load=load) if load else files.thread
            return thread, KnownThread(files.thread, files.data, schedstat, settings) if settings else None

        return reader

    def _is_alone(self, stat: Stat) -> bool:
        """A captured machine has the files of the threads only."""
        return bool(stat.flags & PF_KTHREAD) or (self._has_clocks and stat.threads == 1)

    def _was_alone(self, pid: str, known: KnownProcess | None) -> bool:
        process = self._before(pid, known, self._processes.get(pid))
        thread = self._before(pid, known.threads.get(pid) if known else None, self._threads.get(pid))
        return (process and process.stat) is (thread and thread.stat)

    def _before(
        self, pid: str, known: KnownProcess | KnownThread | None, sampled: StatSample | None
    ) -> StatSample | None:
        if known and pid in self._asleep and self._first_at is not None:
            return StatSample(known.stat, self._first_at)
        return sampled

    def _load(self, before: StatSample | None, data: bytes, now: Stat) -> float:
        # Most threads sleep between the samples, and their stat files do not change at all.
        if self._first_at is None or (before and before.stat == data):
            return 0.0
        ticks, since = now.ticks, self._first_at
        if before and (then := procfs.parse_stat(before.stat)).started == now.started:
            ticks, since = now.ticks - then.ticks, before.at
        elapsed = self._clock() - since
        return round(max(0, ticks) * 100 / HERTZ / elapsed, 2) if elapsed > 0 else 0.0


def _same(known: KnownThread | None, schedstat: bytes) -> KnownThread | None:
    return known if known and known.schedstat == schedstat and schedstat[:2] not in (b"", b"0 ") else None


def _without_loads(process: Process) -> Process:
    if not process.load and not any(thread.load for thread in process.threads):
        return process
    threads = tuple(replace(thread, load=0.0) if thread.load else thread for thread in process.threads)
    return replace(process, load=0.0, threads=threads)
