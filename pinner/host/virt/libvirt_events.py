"""Receives libvirt's events (virDomainEventID) over a separate connection, opened again after libvirtd restarts. The
hot-plug of a vCPU or iothread has no event, but the kernel reports its thread. A pin has one, whoever set it."""

import logging
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import NamedTuple

import libvirt  # type: ignore[import-untyped]

from pinner.host.virt import domain_xml
from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.doubling import doubled
from pinner.model.event import HostEventKind
from pinner.model.kinds import TargetKind
from pinner.repeated import Repeated
from pinner.worker import BeatingThread

LOG = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0
"""Seconds between two attempts to connect; doubled."""
_KEEPALIVE = (5, 3)
"""The connection is lost after three intervals of five seconds."""
_PIN = re.compile(r"cputune\.(emulator|vcpu|iothread)pin(\d*)")
_TARGETS: dict[str, TargetKind] = {"emulator": "emulator", "vcpu": "vcpu", "iothread": "iothread"}
_RESUMED_AS_START = (
    libvirt.VIR_DOMAIN_EVENT_RESUMED_MIGRATED,
    libvirt.VIR_DOMAIN_EVENT_RESUMED_FROM_SNAPSHOT,
    libvirt.VIR_DOMAIN_EVENT_RESUMED_POSTCOPY,
)
"""After these events a guest runs here in a new QEMU process, as after a start."""


class DomainEvent(NamedTuple):
    """``guest`` is a UUID, ``detail`` libvirt's name of the event."""

    kind: HostEventKind
    guest: str
    detail: str


class Pinned(NamedTuple):
    """A program, perhaps pinner itself, pinned a part of a guest."""

    guest: str
    kind: TargetKind
    part: int | None
    cpus: CpuSet


class Connected(NamedTuple):
    """libvirt answers, also again; ``guests`` are the UUIDs of the active guests."""

    guests: frozenset[str]


class Disconnected(NamedTuple): ...


LibvirtSignal = DomainEvent | Pinned | Connected | Disconnected


class LibvirtEvents:
    """Calls ``publish`` from one of its own threads."""

    def __init__(self, uri: str, publish: Callable[[LibvirtSignal], None]) -> None:
        self._uri = uri
        self._send = publish
        self._sending = threading.Lock()
        self._held: list[LibvirtSignal] | None = None
        self._wake = threading.Event()
        self._closing = False
        self._callbacks: list[int] = []
        self._thread = BeatingThread(self._reconnect, "libvirt-events")
        self.heartbeat = self._thread.heartbeat
        """It has no limit: a connection to a libvirtd that hangs is made when it goes on."""
        self._lost_at: float | None = time.monotonic()

    @property
    def lost(self) -> float | None:
        """Seconds without a connection; None: libvirt answers."""
        lost_at = self._lost_at
        return None if lost_at is None else time.monotonic() - lost_at

    def start(self) -> None:
        _event_loop()
        self._thread.start()

    def close(self) -> None:
        """A libvirtd that hangs delays it by CLOSE_SECONDS at most."""
        self._closing = True
        self.heartbeat.end()
        self._wake.set()
        self._thread.join(CLOSE_SECONDS)

    def _reconnect(self) -> None:
        failures = 0
        while True:
            self._wake.clear()
            if self._closing:
                return
            try:
                connection = self._connect()
            except Exception as error:
                if not failures:
                    LOG.warning("libvirt at %s does not answer, so pinner misses its events: %r", self._uri, error)
                self._wake.wait(doubled(_FIRST_WAIT, failures, _LONGEST_WAIT))
                failures += 1
                continue
            failures = 0
            self._lost_at = None
            self._wake.wait()
            self._lost_at = time.monotonic()
            self._close(connection)
            if not self._closing:
                self._publish(Disconnected())

    def _connect(self) -> libvirt.virConnect:
        connection = libvirt.openReadOnly(self._uri)
        try:
            connection.registerCloseCallback(lambda *_: self._wake.set(), None)
            connection.setKeepAlive(*_KEEPALIVE)
            self._hold()
            self._callbacks = [
                connection.domainEventRegisterAny(None, event, callback, None)
                for event, callback in self._events().items()
            ]
            active = connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE)
            self._release(Connected(frozenset(domain.UUIDString() for domain in active)))
        except BaseException:
            self._close(connection)
            raise
        return connection

    def _hold(self) -> None:
        with self._sending:
            self._held = []

    def _release(self, connected: Connected) -> None:
        """The list of guests may be older than the signals meanwhile: it would drop a guest that has just started."""
        with self._sending:
            held, self._held = self._held or [], None
            for signal in (connected, *held):
                self._send(signal)

    def _publish(self, signal: LibvirtSignal) -> None:
        with self._sending:
            if self._held is None:
                self._send(signal)
            else:
                self._held.append(signal)

    def _close(self, connection: libvirt.virConnect) -> None:
        """The connection stays open while callbacks are registered with it, even after libvirtd has ended."""
        for undo in (
            *(partial(connection.domainEventDeregisterAny, callback) for callback in self._callbacks),
            connection.unregisterCloseCallback,
            connection.close,
        ):
            with suppress(libvirt.libvirtError):
                undo()
        self._callbacks = []

    def _events(self) -> dict[int, Callable[..., None]]:
        return {
            libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE: self._lifecycle,
            libvirt.VIR_DOMAIN_EVENT_ID_TUNABLE: self._tunable,
            libvirt.VIR_DOMAIN_EVENT_ID_REBOOT: self._reset,
            libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_ADDED: self._changed("device added"),
            libvirt.VIR_DOMAIN_EVENT_ID_DEVICE_REMOVED: self._changed("device removed"),
            libvirt.VIR_DOMAIN_EVENT_ID_METADATA_CHANGE: self._metadata,
        }

    def _lifecycle(self, _: object, domain: libvirt.virDomain, event: int, detail: int, __: object) -> None:
        match event:
            case libvirt.VIR_DOMAIN_EVENT_STARTED:
                reason = f"started: {_detail_name('VIR_DOMAIN_EVENT_STARTED_', detail)}"
                self._publish(DomainEvent("guest-started", domain.UUIDString(), reason))
            case libvirt.VIR_DOMAIN_EVENT_RESUMED if detail in _RESUMED_AS_START:
                reason = f"resumed: {_detail_name('VIR_DOMAIN_EVENT_RESUMED_', detail)}"
                self._publish(DomainEvent("guest-started", domain.UUIDString(), reason))
            case libvirt.VIR_DOMAIN_EVENT_SUSPENDED:
                reason = f"paused: {_detail_name('VIR_DOMAIN_EVENT_SUSPENDED_', detail)}"
                self._publish(DomainEvent("guest-paused", domain.UUIDString(), reason))
            case libvirt.VIR_DOMAIN_EVENT_STOPPED:
                reason = f"stopped: {_detail_name('VIR_DOMAIN_EVENT_STOPPED_', detail)}"
                self._publish(DomainEvent("guest-stopped", domain.UUIDString(), reason))

    def _tunable(self, _: object, domain: libvirt.virDomain, parameters: dict[str, object], __: object) -> None:
        for name, value in parameters.items():
            if match := _PIN.fullmatch(name):
                part = int(match[2]) if match[2] else None
                cpus = CpuSet.parse(str(value))
                self._publish(Pinned(domain.UUIDString(), _TARGETS[match[1]], part, cpus))

    def _metadata(self, _: object, domain: libvirt.virDomain, __: int, namespace: str | None, ___: object) -> None:
        if namespace == domain_xml.PINNER:
            self._publish(DomainEvent("guest-changed", domain.UUIDString(), "metadata"))

    def _reset(self, _: object, domain: libvirt.virDomain, *__: object) -> None:
        self._publish(DomainEvent("guest-reset", domain.UUIDString(), ""))

    def _changed(self, detail: str) -> Callable[..., None]:
        return lambda _, domain, *__: self._publish(DomainEvent("guest-changed", domain.UUIDString(), detail))


@cache
def _event_loop() -> None:
    """libvirt's event loop must start once, before the connections. It cannot be stopped."""
    # Without a handler libvirt prints every error to the terminal, although it raises it too.
    libvirt.registerErrorHandler(lambda *_: None, None)
    libvirt.virEventRegisterDefaultImpl()

    def run() -> None:
        failing = Repeated(LOG)
        while True:
            try:
                libvirt.virEventRunDefaultImpl()
            except libvirt.libvirtError as error:
                failing.warn("libvirt's event loop failed, and goes on: %s", error)
                time.sleep(1)

    threading.Thread(target=run, name="libvirt-loop", daemon=True).start()


@cache
def _detail_name(prefix: str, value: int) -> str:
    return next(
        (
            name.removeprefix(prefix).lower().replace("_", " ")
            for name, known in vars(libvirt).items()
            if name.startswith(prefix) and known == value
        ),
        f"detail {value}",
    )


class OwnPins:
    """The latest pin of each part by pinner: its event is ignored. After a restart pinner finds its pins correct."""

    def __init__(self) -> None:
        self._pins: dict[str, dict[tuple[TargetKind, int | None], CpuSet]] = {}

    def add(self, target: Target, cpus: CpuSet) -> None:
        """Called before libvirt, so that the event cannot come earlier."""
        self._pins.setdefault(target.owner, {})[target.kind, target.part] = cpus

    def forget(self, guest: str) -> None:
        self._pins.pop(guest, None)

    def has(self, guest: str, kind: TargetKind, part: int | None, cpus: CpuSet) -> bool:
        return self._pins.get(guest, {}).get((kind, part)) == cpus
