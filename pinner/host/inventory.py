"""Takes a snapshot of a host: all facts that the planner uses."""

import time
from collections.abc import Callable, Collection, Container, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from pinner.host.hardware import libnuma
from pinner.host.hardware.sysfs import read_topology
from pinner.host.hardware.sysfs_nodes import overlaps
from pinner.host.kernel import procfs
from pinner.host.kernel.kernel import boot_id
from pinner.host.processes import ovs
from pinner.host.processes.immovable import classify
from pinner.host.processes.reservations import NO_OWNERS, AffinityOwners, with_reservations
from pinner.host.processes.sampling import Scanner
from pinner.host.settings import states
from pinner.host.settings.coalescing import received
from pinner.host.settings.row import Facts
from pinner.host.virt import capabilities
from pinner.host.virt.guests import without_recorded_pins
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Gone, Invalid
from pinner.model.guest.guest import Guest, InactiveGuest
from pinner.model.guest.nova import NovaConf, NovaSets, configured
from pinner.model.kinds import SETTINGS, TargetKind
from pinner.model.machine.ovs import OvsMasks
from pinner.model.machine.topology import Topology
from pinner.model.run.journal import RecordedPins
from pinner.model.settings.guest_rps import GuestRps
from pinner.model.settings.refusal import RefusedSetting
from pinner.model.snapshot import Snapshot

LIVE = Path("/")


class Guests(Protocol):
    """The part of Libvirt that a snapshot needs."""

    def guests(self, root: Path, *, memory: bool = True) -> tuple[Guest, ...]:
        """The active guests, their threads read below ``root``; ``memory``: see read_guests."""

    def inactive(self) -> tuple[InactiveGuest, ...]:
        """The guests that are defined and do not run."""

    def capabilities(self) -> str:
        """The host's capabilities as XML."""


def take_snapshot(
    root: Path,
    host: str,
    libvirt: Guests | None,
    *,
    sample_seconds: float,
    now: Callable[[], datetime],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
    own: Container[int] = (),
    placed: tuple[CpuSet, ...] = (),
    sets: NovaSets = NovaSets(),
    nova: NovaConf | None = None,
    pins: Callable[[Collection[str]], RecordedPins] = lambda _: RecordedPins(),
    owners: AffinityOwners = NO_OWNERS,
    minimum_cores: int = 1,
    weights: Mapping[str, float] = MappingProxyType({}),
    ovs_masks: Callable[[], OvsMasks] = OvsMasks,
    scanner: Scanner | None = None,
    only: Collection[TargetKind] | None = None,
    guest_rps: Callable[[tuple[Guest, ...]], tuple[GuestRps, ...]] | None = None,
) -> Snapshot:
    """Take a snapshot of the machine below ``root``; ``sample_seconds`` lie between the two samples (0: no loads).

    On a captured machine pinner measures no load and does not ask libnuma. ``own`` are pinner's process ids, ``placed``
    the masks that it set, and ``pins`` gives the pins that it made on guests (by UUID). ``sets`` are Nova's CPU sets
    from pinner's configuration; a set that is not configured there is read from ``nova``, and stays unknown where that
    is unreadable. ``owners``, ``minimum_cores`` and ``weights`` are configured, too; ``ovs_masks`` reads Open vSwitch's
    database; ``scanner`` knows what an earlier snapshot of ``root`` has read; ``guest_rps`` asks the agents of guests.
    With ``only``, the snapshot lacks the warnings, and the SETTINGS and the memory of guests where their kinds are not
    among these. Raises Invalid for a root without CPUs, and HostUnreachable or NotPermitted where libvirt does not
    answer.
    """
    sample_seconds = sample_seconds if root == LIVE else 0.0
    packets, began = received(root) if sample_seconds else {}, clock()
    processes = (scanner or Scanner(root)).sample(sample_seconds, sleep, clock)
    topology = read_topology(root)
    memory = only is None or "memory" in only
    guests = _without_recorded_pins(libvirt.guests(root, memory=memory), pins) if libvirt else ()
    baseline = baseline_of(root, topology, placed)
    known = {guest.pid for guest in guests}
    classified = classify(processes, guests=known, own=own, baseline=baseline, placed=placed, online=topology.online)
    reserving = with_reservations(root, classified, owners, _uptime(root))
    with suppress(Invalid):
        sets = configured(sets, nova)
    refused: list[RefusedSetting] = []
    facts = Facts(root, processes, guests, packets, lambda: clock() - began, guest_rps, refused)
    return Snapshot(
        host=host,
        taken_at=now(),
        sample_seconds=sample_seconds,
        topology=topology,
        guests=guests,
        processes=reserving,
        baseline=baseline,
        dedicated=sets.dedicated,
        shared=sets.shared,
        nova=nova,
        placed=placed,
        minimum_cores=minimum_cores,
        warnings=(*_warnings(root, topology, libvirt), *_unread(guests)) if only is None else (),
        boot=boot_id(root),
        inactive=libvirt.inactive() if libvirt else (),
        ovs=ovs.dpdk(reserving, ovs_masks()),
        weights=dict(weights),
        **states.read(facts, SETTINGS if only is None else only),
        refused=tuple(refused),
    )


def _without_recorded_pins(
    guests: tuple[Guest, ...], pins: Callable[[Collection[str]], RecordedPins]
) -> tuple[Guest, ...]:
    if not (pinned := {guest.uuid for guest in guests if guest.operator_pins or guest.numa.pins}):
        return guests
    recorded = pins(pinned)
    return tuple(without_recorded_pins(guest, recorded) if guest.uuid in pinned else guest for guest in guests)


def baseline_of(root: Path, topology: Topology, placed: Collection[CpuSet] = ()) -> CpuSet:
    """The unrestricted affinity on this host: the online CPUs that process 1 may use.

    A restricted process 1 is restricted on purpose. Where process 1 does not exist (a captured machine), or pinner
    placed it, the baseline is all CPUs with load balancing.
    """
    balanced = topology.online - topology.isolated
    try:
        affinity = next(thread.affinity for thread in procfs.threads_of(root, 1) if thread.tid == 1)
    except (Gone, StopIteration):
        return balanced
    return balanced if affinity in placed else affinity & topology.online


def _uptime(root: Path) -> float | None:
    return time.clock_gettime(time.CLOCK_BOOTTIME) if root == LIVE else None


def _unread(guests: tuple[Guest, ...]) -> tuple[str, ...]:
    return tuple(
        f"guest {guest.name} is left alone, because it cannot be read: {guest.unread}"
        for guest in guests
        if guest.unread
    )


def _warnings(root: Path, topology: Topology, libvirt: Guests | None) -> tuple[str, ...]:
    found = overlaps(root)
    if libvirt:
        try:
            found += capabilities.disagreements(topology, libvirt.capabilities())
        except Invalid as error:
            found += (str(error),)
    return found + (libnuma.disagreements(topology) if root == LIVE else ())
