"""What the process connector would tell, found by looking at /proc again and again: where the kernel tells nothing."""

from collections.abc import Collection, Iterator
from pathlib import Path

from pinner.host import files, procfs
from pinner.host.netlink import Began, Born


class Scan:
    """Satisfies what is read of ProcessEvents. It misses what begins and ends between two looks."""

    def __init__(self, root: Path) -> None:
        self._proc = f"{root}/proc"
        self._processes = self._scan()
        self._threads: dict[int, frozenset[int]] = {}

    def read(self, with_threads: Collection[int]) -> Iterator[Born | Began]:
        """What began since the last look; births only of threads of these processes."""
        known, self._processes = self._processes, self._scan()
        for pid, seen in self._processes.items():
            if known.get(pid) != seen:
                yield Began(pid)
        before, self._threads = self._threads, {pid: self._tasks(pid) for pid in with_threads}
        for pid in before.keys() & self._threads.keys():
            yield from (Born(pid, tid) for tid in sorted(self._threads[pid] - before[pid]))

    def _scan(self) -> dict[int, tuple[int, str]]:
        """When each process began, and its name."""
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
