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
from pinner.host.bursts import Bursts
from pinner.host.given import Given
from pinner.host.inotify import Written
from pinner.host.kernel import cpuset_mount
from pinner.host.libvirt_events import Connected, Disconnected, GuestNews, Heard, Pinned
from pinner.host.netlink import Began, Born, CpuChanged, Lost
from pinner.host.sources import Happened, Sources
from pinner.host.watched import Watched
from pinner.model.cpuset import CpuSet
from pinner.model.drift import NewsKind

LOG = logging.getLogger(__name__)

ROOT = Path("/")
SETTLE = 0.1
"""Seconds: libvirt itself takes some of them to pin a vCPU that was just plugged in."""
LOOK = 5.0
"""Seconds between two looks at what nobody tells: whose births are asked for, and births where the kernel is silent."""


class Newsroom(Protocol):
    """Where news is told, and whose births are asked for."""

    @property
    def watched(self) -> frozenset[str]:
        """Names of processes (comm)."""

    def when_watched(self, call: Callable[[], None]) -> None:
        """Have ``call`` called whenever other names are asked for."""

    def tell(self, kind: NewsKind, subject: str, detail: str = "") -> None:
        """Something happened just now; never blocks and never raises."""


class Events:
    """Watches this machine in a thread of its own, from ``start`` to ``close``."""

    def __init__(self, uri: str, given: Given, newsroom: Newsroom, placed: Callable[[], Collection[CpuSet]]) -> None:
        """``uri`` is libvirt's; ``given`` knows pinner's own pins, ``placed`` the masks that it gave to processes."""
        self._given = given
        self._newsroom = newsroom
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
        self._news: Bursts[tuple[NewsKind, str], str] = Bursts(SETTLE)
        self._births: Bursts[int, int] = Bursts(SETTLE)
        """New threads by QEMU's process id."""
        self._writes: Bursts[str, None] = Bursts(SETTLE)
        """By file; opening one to write it is told as a write, too, and its new content comes later."""
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._newsroom.when_watched(self._sources.wake)
        self._thread.start()

    def close(self) -> None:
        """End."""
        self._closing = True
        self._sources.wake()
        self._thread.join()

    def _run(self) -> None:
        next_look = time.monotonic() + LOOK
        with self._sources as sources:
            while not self._closing:
                now = time.monotonic()
                held = (self._news, self._births, self._writes)
                for happened in sources.wait(min(bursts.wait(now, LOOK) for bursts in held)):
                    self._react(happened)
                if time.monotonic() >= next_look:
                    next_look = time.monotonic() + LOOK
                    for began in sources.look(self._watched.qemus):
                        self._react(began)
                self._settle()

    def _react(self, happened: Happened) -> None:
        match happened:
            case Born(pid, tid):
                if pid in self._watched.qemus:
                    self._births.add(pid, tid, time.monotonic())
            case Began(pid):
                self._began(pid)
            case Written(file):
                self._writes.add(file, None, time.monotonic())
            case CpuChanged(cpu, action):
                self._newsroom.tell("cpu-changed", str(cpu), action)
            case Lost(what):
                self._newsroom.tell("lost", "", f"the kernel told {what} faster than they were read")
            case _:
                self._heard(happened)

    def _heard(self, heard: Heard) -> None:
        match heard:
            case Pinned(guest, kind, part, cpus):
                if not self._given.has(guest, kind, part, cpus):
                    detail = f"{kind}{'' if part is None else f' {part}'} pinned to {cpus}"
                    self._news.add(("guest-changed", guest), detail, time.monotonic())
            case GuestNews():
                self._guest(heard)
            case Connected(guests):
                self._connect(guests)
            case Disconnected():
                LOG.warning("libvirt answers no more")

    def _connect(self, guests: frozenset[str]) -> None:
        if self._connected:
            self._newsroom.tell("lost", "", "libvirt answers again")
        self._connected, self._stale = True, True
        self._guests = set(guests)

    def _guest(self, news: GuestNews) -> None:
        match news.kind:
            case "guest-started":
                self._guests.add(news.guest)
            case "guest-stopped":
                self._guests.discard(news.guest)
                self._given.forget(news.guest)
            case _:
                self._news.add((news.kind, news.guest), news.detail, time.monotonic())
                return
        self._newsroom.tell(news.kind, news.guest, news.detail)
        self._stale = True

    def _began(self, pid: int) -> None:
        """A child of a placed process begins with the mask of its parent, which is right."""
        name = watched.name_of(ROOT, pid)
        if name not in self._newsroom.watched:
            return
        try:
            mask = CpuSet.of(os.sched_getaffinity(pid))
        except OSError:
            return
        if mask not in self._placed():
            self._newsroom.tell("process-born", str(pid), name)
            self._stale = True

    def _written(self, file: str) -> None:
        folder, owner = Path(file).parent, self._watched.files.get(file)
        cpus = files.cpu_list(folder / cpusets.CPUS) or CpuSet()
        if owner is None or not self._given.has(*owner, cpus):
            subject = str(folder.relative_to(self._mount.folder))
            self._newsroom.tell("cpuset-written", subject, f"CPUs {cpus}")

    def _settle(self) -> None:
        """Tell what is due, and watch what there is now."""
        now = time.monotonic()
        for pid, tids in self._births.due(now):
            if names := watched.strays(ROOT, pid, tids):
                self._newsroom.tell("guest-changed", self._watched.qemus.get(pid, ""), f"born: {', '.join(names)}")
                self._stale = True
        for file, _ in self._writes.due(now):
            self._written(file)
        for (kind, subject), details in self._news.due(now):
            self._newsroom.tell(kind, subject, "; ".join(dict.fromkeys(details)))
        asked = self._newsroom.watched
        if self._stale or asked != self._names:
            new, self._stale, self._names = asked - self._names, False, asked
            self._watched = watched.find(ROOT, self._mount, self._guests, asked)
            self._sources.watch(self._watched.files)
            # They may have begun after somebody last looked, and before anybody asked for them.
            for pid in (pid for pid, name in self._watched.named.items() if name in new):
                self._began(pid)
