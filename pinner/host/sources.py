"""All that tells of a host's changes, behind one selector: nothing runs until one of them speaks."""

import logging
import os
import selectors
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Protocol, TypeVar

from pinner.host.inotify import Inotify, Written
from pinner.host.libvirt_events import LibvirtEvents, LibvirtSignal
from pinner.host.netlink import Began, Born, CpuChanged, CpuEvents, Lost, ProcessEvents
from pinner.host.scan import Scan
from pinner.model.errors import NotPermitted

LOG = logging.getLogger(__name__)

HostSignal = Born | Began | CpuChanged | Lost | Written | LibvirtSignal


class _Source(Protocol):
    def fileno(self) -> int: ...

    def read(self) -> Iterable[HostSignal]: ...

    def close(self) -> None: ...


S = TypeVar("S", bound=_Source)


class Sources:
    """libvirt, the kernel's births, its CPUs, and writes to files, from the first to the last line of a ``with``.

    What the kernel refuses to tell is logged and done without, but for births, which ``look`` then looks for.
    """

    def __init__(self, uri: str, root: Path) -> None:
        """``uri`` is libvirt's; births are looked for below ``root``."""
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
        births = self._open(ProcessEvents, "programs and threads that begin")
        self._scan = Scan(root) if births is None else None
        self._libvirt = LibvirtEvents(uri, self._receive)

    def __enter__(self) -> "Sources":
        self._libvirt.start()
        self._undo.callback(self._libvirt.close)
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def wake(self) -> None:
        """End a ``wait`` that is under way, from another thread."""
        os.eventfd_write(self._wake, 1)

    def watch(self, files: Iterable[str]) -> None:
        """Tell of writes to these files, and to no others."""
        if self._inotify is not None and (refused := self._inotify.watch(files)):
            LOG.warning(
                "fs.inotify.max_user_watches is too low: writes to %s and %d other files are not told",
                refused[0],
                len(refused) - 1,
            )

    def wait(self, seconds: float) -> Iterator[HostSignal]:
        """What happens next, at most ``seconds`` from now."""
        for key, _ in self._selector.select(seconds):
            yield from key.data()

    def rescan(self, with_threads: Collection[int]) -> Iterator[Born | Began]:
        """What began since the last look, births of these processes only, where the kernel does not tell of it."""
        if self._scan is not None:
            yield from self._scan.read(with_threads)

    def _open(self, kind: Callable[[], S], what: str) -> S | None:
        try:
            source = kind()
        except NotPermitted as error:
            LOG.warning("%s: %s are found late, by looking at the host every few seconds", error, what)
            return None
        self._undo.callback(source.close)
        self._selector.register(source, selectors.EVENT_READ, source.read)
        return source

    def _receive(self, signal: LibvirtSignal) -> None:
        """libvirt's thread leaves word and goes on."""
        self._received.put(signal)
        self.wake()

    def _read_libvirt(self) -> Iterator[LibvirtSignal]:
        os.eventfd_read(self._wake)
        while True:
            try:
                yield self._received.get_nowait()
            except Empty:
                return
