"""All sources of signals about this host, behind one selector."""

import ctypes
import errno
import logging
import os
import selectors
import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import NamedTuple, Protocol, TypeVar

from pinner.host.kernel import files, procfs
from pinner.host.kernel.netlink import CpuChanged, CpuEvents, EventsLost, ProcessEvents, ProgramStarted, ThreadCreated
from pinner.host.virt.libvirt_events import LibvirtEvents, LibvirtSignal
from pinner.model.errors import NotPermitted

_MODIFY = 0x2
_OVERFLOW = 0x4000
_EVENT = struct.Struct("=iIII")
_BUFFER = 65536


class FileWritten(NamedTuple):
    file: str


class Inotify:
    """Writes to files (inotify(7)). The kernel reports a write(2) to a cgroup's file, but not its own changes, except
    of cpuset.cpus.partition. It never blocks. Raises NotPermitted at the kernel's limit of instances."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise NotPermitted("file events", f"inotify_init1 fails: {os.strerror(ctypes.get_errno())}")
        self._watches: dict[int, str] = {}

    def fileno(self) -> int:
        return int(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)

    def watch(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Watch these files only, again where created anew. Returns those beyond fs.inotify.max_user_watches."""
        wanted: dict[int, str] = {}
        refused = []
        for path in paths:
            watch = self._libc.inotify_add_watch(self._descriptor, os.fsencode(path), ctypes.c_uint32(_MODIFY))
            if watch >= 0:
                wanted[watch] = path
            elif ctypes.get_errno() == errno.ENOSPC:
                refused.append(path)
        for watch in self._watches.keys() - wanted.keys():
            self._libc.inotify_rm_watch(self._descriptor, watch)
        self._watches = wanted
        return tuple(refused)

    def read(self) -> Iterator[FileWritten | EventsLost]:
        written: dict[FileWritten | EventsLost, None] = {}
        with suppress(BlockingIOError):
            events = os.read(self._descriptor, _BUFFER)
            at = 0
            while at < len(events):
                watch, mask, _, length = _EVENT.unpack_from(events, at)
                at += _EVENT.size + length
                if mask & _OVERFLOW:
                    written[EventsLost("file events")] = None
                elif mask & _MODIFY and watch in self._watches:
                    written[FileWritten(self._watches[watch])] = None
        yield from written


LOG = logging.getLogger(__name__)

HostSignal = ThreadCreated | ProgramStarted | CpuChanged | EventsLost | FileWritten | LibvirtSignal


class _Source(Protocol):
    def fileno(self) -> int: ...

    def read(self) -> Iterable[HostSignal]: ...

    def close(self) -> None: ...


S = TypeVar("S", bound=_Source)


class Sources:
    """A refused source is logged and left out. Without the process connector ``rescan`` finds programs and threads."""

    def __init__(self, uri: str, root: Path) -> None:
        self._uri = uri
        self._root = root
        self._received: SimpleQueue[LibvirtSignal] = SimpleQueue()
        self._undo = ExitStack()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._undo.callback(os.close, self._wake)
        self._selector = self._undo.enter_context(selectors.DefaultSelector())
        self._selector.register(self._wake, selectors.EVENT_READ, self._read_libvirt)
        self._inotify = self._open(Inotify, "writes to cpusets")
        self._open(CpuEvents, "CPUs that go offline or come online")
        process_events = self._open(ProcessEvents, "new programs and threads")
        self._scan = Scan(root) if process_events is None else None
        self._libvirt = LibvirtEvents(uri, self._receive)
        self.heartbeat = self._libvirt.heartbeat

    def __enter__(self) -> "Sources":
        self._libvirt.start()
        self._undo.callback(self._libvirt.close)
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    @property
    def libvirt_lost(self) -> float | None:
        return self._libvirt.lost

    def wake(self) -> None:
        os.eventfd_write(self._wake, 1)

    def watch(self, files: Iterable[str]) -> None:
        if self._inotify is not None and (refused := self._inotify.watch(files)):
            LOG.warning(
                "fs.inotify.max_user_watches is too low: the kernel does not report writes to %s and %d other files",
                refused[0],
                len(refused) - 1,
            )

    def wait(self, seconds: float) -> Iterator[HostSignal]:
        for key, _ in self._selector.select(seconds):
            yield from key.data()

    def rescan(self, with_threads: Collection[int]) -> Iterator[ThreadCreated | ProgramStarted]:
        """It gives nothing where the process connector works."""
        if self._scan is not None:
            yield from self._scan.read(with_threads)

    def _open(self, kind: Callable[[], S], what: str) -> S | None:
        try:
            source = kind()
        except NotPermitted as error:
            LOG.warning("%s: pinner finds %s later, when it checks the host", error, what)
            return None
        self._undo.callback(source.close)
        self._selector.register(source, selectors.EVENT_READ, source.read)
        return source

    def _receive(self, signal: LibvirtSignal) -> None:
        self._received.put(signal)
        self.wake()

    def _read_libvirt(self) -> Iterator[LibvirtSignal]:
        os.eventfd_read(self._wake)
        while True:
            try:
                yield self._received.get_nowait()
            except Empty:
                return


class Scan:
    """Takes the place of ProcessEvents, but misses what starts and ends between two scans."""

    def __init__(self, root: Path) -> None:
        self._proc = f"{root}/proc"
        self._processes = self._scan()
        self._threads: dict[int, frozenset[int]] = {}

    def read(self, with_threads: Collection[int]) -> Iterator[ThreadCreated | ProgramStarted]:
        known, self._processes = self._processes, self._scan()
        for pid, program in self._processes.items():
            if known.get(pid) != program:
                yield ProgramStarted(pid)
        threads = {pid: frozenset(map(int, files.numbers(f"{self._proc}/{pid}/task"))) for pid in with_threads}
        before, self._threads = self._threads, threads
        for pid in before.keys() & self._threads.keys():
            yield from (ThreadCreated(pid, tid) for tid in sorted(self._threads[pid] - before[pid]))

    def _scan(self) -> dict[int, tuple[int, str]]:
        programs = {}
        for pid in files.numbers(self._proc):
            try:
                stat = procfs.parse_stat(files.read(f"{self._proc}/{pid}/stat"))
            except (OSError, ValueError, IndexError):
                continue
            programs[int(pid)] = (stat.started, stat.name)
        return programs
