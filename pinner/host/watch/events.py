"""Publishes changes of this host that may move a thread: bursts (a guest's pins, the threads of a hot-plug) once, a new
process with a correct mask and pinner's own pins never."""

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from pinner.host.kernel import cgroups, files, procfs
from pinner.host.kernel.kernel import Mount, cpuset_mount
from pinner.host.kernel.netlink import CpuChanged, EventsLost, ProgramStarted, ThreadCreated
from pinner.host.processes import qemu
from pinner.host.virt.libvirt import Libvirt
from pinner.host.virt.libvirt_events import Connected, Disconnected, DomainEvent, LibvirtSignal, OwnPins, Pinned
from pinner.host.watch.sources import FileWritten, HostSignal, Sources
from pinner.model.cpuset import CpuSet
from pinner.model.doubling import doubled
from pinner.model.event import HostEventKind
from pinner.model.health import Check
from pinner.model.kinds import TargetKind
from pinner.worker import BeatingThread, Heartbeat

LOG = logging.getLogger(__name__)

ROOT = Path("/")
DEBOUNCE_SECONDS = 0.1
"""Long enough for libvirt to pin a vCPU after a hot-plug."""
HANGS_SECONDS = 300.0
"""A longer search for processes and files hangs."""
FIRST_RETRY, LAST_RETRY = 1.0, 30.0
"""Seconds until the next attempt after an error; doubled after each attempt."""
MAX_DETAIL = 500
RESCAN_SECONDS = 5.0
"""Between checks without events: the watched names; and new processes and threads without the process connector."""


class EventSink(Protocol):
    @property
    def watched(self) -> frozenset[str]:
        """The names (comm) of the processes to watch."""

    def on_watched(self, call: Callable[[], None]) -> None: ...

    def publish(self, kind: HostEventKind, subject: str, detail: str = "") -> None:
        """Never blocks and never raises."""


class ConfinedPart(NamedTuple):
    guest: str
    kind: TargetKind
    part: int | None


@dataclass(frozen=True, slots=True)
class Watched:
    qemus: Mapping[int, str]
    """UUIDs by process id."""
    named: Mapping[int, str]
    files: Mapping[str, ConfinedPart | None]
    """The files of cpusets, with the part that each confines."""


def find_watched(root: Path, mount: Mount, guests: Collection[str], names: Collection[str]) -> Watched:
    qemus = {pid: uuid for uuid, pid in qemu.find(root, guests).qemus.items()} if guests else {}
    named = {pid: name for pid, name in procfs.names_of_all(root) if name in names} if names else {}
    confined: dict[str, ConfinedPart | None] = {}
    for pid in (*qemus, *named):
        confined |= dict.fromkeys(_files(cgroups.folders_of(root, mount, pid)))
    for pid, uuid in qemus.items():
        confined |= _of_guest(root, mount, pid, uuid)
    return Watched(qemus, named, confined)


def misplaced(root: Path, pid: int, tids: Iterable[int]) -> tuple[str, ...]:
    """Hot-plugged vCPUs and iothreads, and emulator threads that inherit one's mask."""
    names = []
    for tid in tids:
        try:
            name = files.decode(files.read(f"{root}/proc/{pid}/task/{tid}/comm")).strip()
            if not qemu.is_emulator(name) or os.sched_getaffinity(tid) != os.sched_getaffinity(pid):
                names.append(name)
        except OSError:
            continue
    return tuple(names)


def _of_guest(root: Path, mount: Mount, pid: int, uuid: str) -> dict[str, ConfinedPart | None]:
    confined: dict[str, ConfinedPart | None] = {}
    for folder, part in cgroups.parts_of_guest(root, mount, pid):
        confined |= dict.fromkeys(_files([folder]), ConfinedPart(uuid, *part) if part else None)
    return confined


def _files(folders: Iterable[Path]) -> Iterator[str]:
    for folder in folders:
        yield str(folder / cgroups.CPUS)
        yield str(folder / cgroups.PARTITION)


class HostWatcher:
    def __init__(self, uri: str, own_pins: OwnPins, sink: EventSink, placed: Callable[[], Collection[CpuSet]]) -> None:
        """``uri`` is libvirt's; ``placed`` are the masks of placed processes."""
        self._own_pins = own_pins
        self._sink = sink
        self._placed = placed
        self._sources = Sources(uri, ROOT)
        self._mount = cpuset_mount(ROOT)
        self._closing = False
        self._connected = False
        self._stale = False
        self._guests: set[str] = set()
        self._names: frozenset[str] = frozenset()
        self._watched = Watched({}, {}, {})
        self._changes: Debouncer[tuple[HostEventKind, str], str] = Debouncer(DEBOUNCE_SECONDS)
        self._new_threads: Debouncer[int, int] = Debouncer(DEBOUNCE_SECONDS)
        """The key is QEMU's process id."""
        self._writes: Debouncer[str, None] = Debouncer(DEBOUNCE_SECONDS)
        """Truncation on open counts as a write too; the content comes later."""
        self._thread = BeatingThread(self._run, "events", HANGS_SECONDS)
        self._wait = threading.Event()
        self._next_rescan = time.monotonic() + RESCAN_SECONDS
        self.failure = ""

    @property
    def heartbeats(self) -> list[Heartbeat]:
        return [self._thread.heartbeat, self._sources.heartbeat]

    @property
    def libvirt_lost(self) -> float | None:
        return self._sources.libvirt_lost

    def start(self) -> None:
        self._sink.on_watched(self._sources.wake)
        self._thread.start()

    def close(self) -> None:
        self._closing = True
        self._thread.heartbeat.end()
        self._wait.set()
        self._sources.wake()
        self._thread.join()

    def _run(self) -> None:
        failures = 0
        with self._sources as sources:
            while not self._closing:
                self._thread.heartbeat.beat()
                try:
                    self._step(sources)
                except Exception as error:
                    # For instance no file descriptor is left. The signals that were read are lost.
                    retry = doubled(FIRST_RETRY, failures, LAST_RETRY)
                    LOG.exception("changes of this host are not reported for %g s", retry)
                    self.failure, self._stale = f"{type(error).__name__}: {error}", True
                    self._wait.wait(retry)
                    failures += 1
                    continue
                if self.failure:
                    self._sink.publish("lost", "", f"the watcher of this host failed: {self.failure}"[:MAX_DETAIL])
                self.failure, failures = "", 0

    def _step(self, sources: Sources) -> None:
        now = time.monotonic()
        debouncers = (self._changes, self._new_threads, self._writes)
        for signal in sources.wait(min(debouncer.wait(now, RESCAN_SECONDS) for debouncer in debouncers)):
            self._react(signal)
        if time.monotonic() >= self._next_rescan:
            self._next_rescan = time.monotonic() + RESCAN_SECONDS
            for signal in sources.rescan(self._watched.qemus):
                self._react(signal)
        self._flush()

    def _react(self, signal: HostSignal) -> None:
        match signal:
            case ThreadCreated(pid, tid):
                if pid in self._watched.qemus:
                    self._new_threads.add(pid, tid, time.monotonic())
            case ProgramStarted(pid):
                self._check_process(pid)
            case FileWritten(file):
                self._writes.add(file, None, time.monotonic())
            case CpuChanged(cpu, action):
                self._sink.publish("cpu-changed", str(cpu), action)
            case EventsLost(what):
                self._sink.publish("lost", "", f"the kernel sent {what} faster than pinner read them")
            case _:
                self._react_to_libvirt(signal)

    def _react_to_libvirt(self, signal: LibvirtSignal) -> None:
        match signal:
            case Pinned(guest, kind, part, cpus):
                if not self._own_pins.has(guest, kind, part, cpus):
                    detail = f"{kind}{'' if part is None else f' {part}'} pinned to {cpus}"
                    self._changes.add(("guest-changed", guest), detail, time.monotonic())
            case DomainEvent():
                self._react_to_domain(signal)
            case Connected(guests):
                self._react_to_connection(guests)
            case Disconnected():
                LOG.warning("libvirt does not answer any more")

    def _react_to_connection(self, guests: frozenset[str]) -> None:
        if self._connected:
            self._sink.publish("lost", "", "libvirt answers again")
        self._connected, self._stale = True, True
        self._guests = set(guests)

    def _react_to_domain(self, event: DomainEvent) -> None:
        match event.kind:
            case "guest-started":
                self._guests.add(event.guest)
            case "guest-stopped":
                self._guests.discard(event.guest)
                self._own_pins.forget(event.guest)
            case _:
                self._changes.add((event.kind, event.guest), event.detail, time.monotonic())
                return
        self._sink.publish(event.kind, event.guest, event.detail)
        self._stale = True

    def _check_process(self, pid: int) -> None:
        """A process with a placed process's mask has inherited it."""
        name = procfs.name_of(ROOT, pid)
        if name not in self._sink.watched:
            return
        try:
            mask = CpuSet.of(os.sched_getaffinity(pid))
        except OSError:
            return
        if mask not in self._placed():
            self._sink.publish("process-started", str(pid), name)
            self._stale = True

    def _check_cpuset(self, file: str) -> None:
        folder, owner = Path(file).parent, self._watched.files.get(file)
        cpus = files.cpu_list(folder / cgroups.CPUS) or CpuSet()
        if owner is None or not self._own_pins.has(*owner, cpus):
            subject = str(folder.relative_to(self._mount.folder))
            self._sink.publish("cpuset-written", subject, f"CPUs {cpus}")

    def _flush(self) -> None:
        now = time.monotonic()
        for pid, tids in self._new_threads.due(now):
            if names := misplaced(ROOT, pid, tids):
                guest = self._watched.qemus.get(pid, "")
                self._sink.publish("guest-changed", guest, f"new threads: {', '.join(names)}")
                self._stale = True
        for file, _ in self._writes.due(now):
            self._check_cpuset(file)
        for (kind, subject), details in self._changes.due(now):
            self._sink.publish(kind, subject, "; ".join(dict.fromkeys(details)))
        names_now = self._sink.watched
        if self._stale or names_now != self._names:
            added, self._stale, self._names = names_now - self._names, False, names_now
            self._watched = find_watched(ROOT, self._mount, self._guests, names_now)
            self._sources.watch(self._watched.files)
            # A process may have started after the latest snapshot and before its name was watched.
            for pid in (pid for pid, name in self._watched.named.items() if name in added):
                self._check_process(pid)


K = TypeVar("K")
V = TypeVar("V")


class Debouncer(Generic[K, V]):
    """Gives the values of each key ``seconds`` after the first one, however long the burst lasts."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._pending: dict[K, tuple[float, list[V]]] = {}

    def add(self, key: K, value: V, now: float) -> None:
        self._pending.setdefault(key, (now + self._seconds, []))[1].append(value)

    def due(self, now: float) -> list[tuple[K, list[V]]]:
        keys = [key for key, (due_at, _) in self._pending.items() if due_at <= now]
        return [(key, self._pending.pop(key)[1]) for key in keys]

    def wait(self, now: float, longest: float) -> float:
        return min((max(due_at - now, 0.0) for due_at, _ in self._pending.values()), default=longest)


def checks(watcher: HostWatcher, libvirt: Libvirt) -> tuple[Check, ...]:
    """They ask nobody, so they never wait."""
    return (_libvirt(watcher, libvirt), Check("events", not watcher.failure, watcher.failure))


def _libvirt(watcher: HostWatcher, libvirt: Libvirt) -> Check:
    if (overdue := libvirt.host_calls.overdue) is not None:
        why = f"libvirt has not answered for {overdue:.0f} s; check whether libvirtd hangs"
        return Check("libvirt", ok=False, why=why)
    if (lost := watcher.libvirt_lost) is not None:
        return Check("libvirt", ok=False, why=f"no connection to libvirt for {lost:.0f} s")
    return Check("libvirt", ok=True)
