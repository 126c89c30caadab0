"""Finds new programs and threads by scanning /proc repeatedly, on hosts without the kernel's process connector."""

from collections.abc import Collection, Iterator
from pathlib import Path

from pinner.host.kernel import files, procfs
from pinner.host.kernel.netlink import ProgramStarted, ThreadCreated


class Scan:
    """A substitute for ProcessEvents. It misses programs and threads that start and end between two scans."""

    def __init__(self, root: Path) -> None:
        self._proc = f"{root}/proc"
        self._processes = self._scan()
        self._threads: dict[int, frozenset[int]] = {}

    def read(self, with_threads: Collection[int]) -> Iterator[ThreadCreated | ProgramStarted]:
        """The programs that started since the previous scan, and the new threads of the processes ``with_threads``."""
        known, self._processes = self._processes, self._scan()
        for pid, found in self._processes.items():
            if known.get(pid) != found:
                yield ProgramStarted(pid)
        before, self._threads = self._threads, {pid: self._tasks(pid) for pid in with_threads}
        for pid in before.keys() & self._threads.keys():
            yield from (ThreadCreated(pid, tid) for tid in sorted(self._threads[pid] - before[pid]))

    def _scan(self) -> dict[int, tuple[int, str]]:
        """Start time and name of each process."""
        found = {}
        for pid in files.numbers(self._proc):
            try:
                stat = procfs.parse_stat(files.read(f"{self._proc}/{pid}/stat"))
            except (OSError, ValueError, IndexError):
                continue
            found[int(pid)] = (stat.started, stat.name)
        return found

    def _tasks(self, pid: int) -> frozenset[int]:
        return frozenset(map(int, files.numbers(f"{self._proc}/{pid}/task")))
