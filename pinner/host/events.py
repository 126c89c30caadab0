"""What happens on a host that may move a thread: heard from all who tell, and told as news.

What comes in bursts (a guest's pins, the threads of a hot-plug) is held back for SETTLE seconds and told once; what is
right already, and what pinner did itself, is not told.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

from pinner.host import cpusets, files, watched
from pinner.host.debouncer import Debouncer
from pinner.host.inotify import Written
from pinner.host.kernel import cpuset_mount
from pinner.host.libvirt_events import Connected, Disconnected, DomainEvent, LibvirtSignal, Pinned
from pinner.host.netlink import Began, Born, CpuChanged, Lost
from pinner.host.own_pins import OwnPins
from pinner.host.sources import HostSignal, Sources
from pinner.host.watched import Watched
from pinner.model.cpuset import CpuSet
from pinner.model.event import HostEventKind

LOG = logging.getLogger(__name__)

ROOT = Path("/")
DEBOUNCE_SECONDS = 0.1
"""Seconds: libvirt itself takes some of them to pin a vCPU that was just plugged in."""
RESCAN_SECONDS = 5.0
"""Seconds between two looks at what nobody tells: whose births are asked for, and births where the kernel is silent."""


class HostEventQueue(Protocol):
    """Where news is told, and whose births are asked for."""

    @property
    def watched(self) -> frozenset[str]:
        """Names of processes (comm)."""

    def on_watched(self, call: Callable[[], None]) -> None:
        """Have ``call`` called whenever other names are asked for."""

    def publish(self, kind: HostEventKind, subject: str, detail: str = "") -> None:
        """Something happened just now; never blocks and never raises."""


class Events:
    """Watches this machine in a thread of its own, from ``start`` to ``close``."""

    def __init__(
        self, uri: str, own_pins: OwnPins, event_queue: HostEventQueue, placed: Callable[[], Collection[CpuSet]]
    ) -> None:
        """``uri`` is libvirt's; ``given`` knows pinner's own pins, ``placed`` the masks that it gave to processes."""
        self._own_pins = own_pins
        self._event_queue = event_queue
        self._placed = placed
        self._sources = Sources(uri, ROOT)
        self._mount = cpuset_mount(ROOT)
        self._closing = False
        self._connected = False
        self._stale = False
        """Whether what is watched is to be found anew."""
        self._guests: set[str] = set()
        self._names: frozenset[str] = frozenset()
        self._watched = Watched({}, {}, {})
        self._changes: Debouncer[tuple[HostEventKind, str], str] = Debouncer(DEBOUNCE_SECONDS)
        self._births: Debouncer[int, int] = Debouncer(DEBOUNCE_SECONDS)
        """New threads by QEMU's process id."""
        self._writes: Debouncer[str, None] = Debouncer(DEBOUNCE_SECONDS)
        """By file; opening one to write it is told as a write, too, and its new content comes later."""
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._event_queue.on_watched(self._sources.wake)
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._closing = True
        self._sources.wake()
        self._thread.join()

    def _run(self) -> None:
        next_rescan = time.monotonic() + RESCAN_SECONDS
        with self._sources as sources:
            while not self._closing:
                now = time.monotonic()
                debouncers = (self._changes, self._births, self._writes)
                for signal in sources.wait(min(debouncer.wait(now, RESCAN_SECONDS) for debouncer in debouncers)):
                    self._react(signal)
                if time.monotonic() >= next_rescan:
                    next_rescan = time.monotonic() + RESCAN_SECONDS
                    for began in sources.rescan(self._watched.qemus):
                        self._react(began)
                self._flush()

    def _react(self, signal: HostSignal) -> None:
        match signal:
            case Born(pid, tid):
                if pid in self._watched.qemus:
                    self._births.add(pid, tid, time.monotonic())
            case Began(pid):
                self._began(pid)
            case Written(file):
                self._writes.add(file, None, time.monotonic())
            case CpuChanged(cpu, action):
                self._event_queue.publish("cpu-changed", str(cpu), action)
            case Lost(what):
                self._event_queue.publish("lost", "", f"the kernel told {what} faster than they were read")
            case _:
                self._react_to_libvirt(signal)

    def _react_to_libvirt(self, signal: LibvirtSignal) -> None:
        match signal:
            case Pinned(guest, kind, part, cpus):
                if not self._own_pins.has(guest, kind, part, cpus):
                    detail = f"{kind}{'' if part is None else f' {part}'} pinned to {cpus}"
                    self._changes.add(("guest-changed", guest), detail, time.monotonic())
            case DomainEvent():
                self._guest(signal)
            case Connected(guests):
                self._connect(guests)
            case Disconnected():
                LOG.warning("libvirt answers no more")

    def _connect(self, guests: frozenset[str]) -> None:
        if self._connected:
            self._event_queue.publish("lost", "", "libvirt answers again")
        self._connected, self._stale = True, True
        self._guests = set(guests)

    def _guest(self, event: DomainEvent) -> None:
        match event.kind:
            case "guest-started":
                self._guests.add(event.guest)
            case "guest-stopped":
                self._guests.discard(event.guest)
                self._own_pins.forget(event.guest)
            case _:
                self._changes.add((event.kind, event.guest), event.detail, time.monotonic())
                return
        self._event_queue.publish(event.kind, event.guest, event.detail)
        self._stale = True

    def _began(self, pid: int) -> None:
        """A child of a placed process begins with the mask of its parent, which is right."""
        name = watched.name_of(ROOT, pid)
        if name not in self._event_queue.watched:
            return
        try:
            mask = CpuSet.of(os.sched_getaffinity(pid))
        except OSError:
            return
        if mask not in self._placed():
            self._event_queue.publish("process-born", str(pid), name)
            self._stale = True

    def _written(self, file: str) -> None:
        folder, owner = Path(file).parent, self._watched.files.get(file)
        cpus = files.cpu_list(folder / cpusets.CPUS) or CpuSet()
        if owner is None or not self._own_pins.has(*owner, cpus):
            subject = str(folder.relative_to(self._mount.folder))
            self._event_queue.publish("cpuset-written", subject, f"CPUs {cpus}")

    def _flush(self) -> None:
        """Tell what is due, and watch what there is now."""
        now = time.monotonic()
        for pid, tids in self._births.due(now):
            if names := watched.misplaced(ROOT, pid, tids):
                self._event_queue.publish(
                    "guest-changed", self._watched.qemus.get(pid, ""), f"born: {', '.join(names)}"
                )
                self._stale = True
        for file, _ in self._writes.due(now):
            self._written(file)
        for (kind, subject), details in self._changes.due(now):
            self._event_queue.publish(kind, subject, "; ".join(dict.fromkeys(details)))
        asked = self._event_queue.watched
        if self._stale or asked != self._names:
            new, self._stale, self._names = asked - self._names, False, asked
            self._watched = watched.find(ROOT, self._mount, self._guests, asked)
            self._sources.watch(self._watched.files)
            # They may have begun after somebody last looked, and before anybody asked for them.
            for pid in (pid for pid, name in self._watched.named.items() if name in new):
                self._began(pid)
