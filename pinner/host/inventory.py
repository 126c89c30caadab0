import time
from collections.abc import Callable, Collection, Container, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Protocol

from pinner.host.hardware import disagreements
from pinner.host.hardware.core_classes import contradictions
from pinner.host.hardware.sysfs import overlaps, present, read_topology
from pinner.host.kernel import procfs
from pinner.host.kernel.kernel import boot_id
from pinner.host.processes import ovs
from pinner.host.processes.immovable import classify, with_forbidden
from pinner.host.processes.reservations import NO_OWNERS, AffinityOwners, with_reservations
from pinner.host.processes.sampling import Scanner
from pinner.host.settings import table
from pinner.host.settings.coalescing import received, with_packet_rates
from pinner.host.settings.irqbalance import read_balancers
from pinner.host.settings.row import AskGuests, Facts
from pinner.host.virt.guests import without_recorded_pins
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Gone, Invalid
from pinner.model.guest.guest import Guest, InactiveGuest
from pinner.model.guest.nova import NovaConf, NovaSets, configured
from pinner.model.kinds import SETTINGS, TargetKind
from pinner.model.machine.process import Process
from pinner.model.machine.topology import Topology
from pinner.model.run.journal import RecordedPins
from pinner.model.snapshot import OvsMasks, Snapshot

LIVE = Path("/")


class Guests(Protocol):
    def guests(self, root: Path, *, memory: bool = True) -> tuple[Guest, ...]: ...

    def inactive(self) -> tuple[InactiveGuest, ...]: ...

    def capabilities(self) -> str: ...


@dataclass(frozen=True, slots=True)
class SnapshotInputs:
    own: Container[int] = ()
    """The ids of pinner's processes."""
    forbidden: Container[int] = ()
    """See ForbiddenProcesses."""
    placed: tuple[CpuSet, ...] = ()
    pins: Callable[[Collection[str]], RecordedPins] = lambda _: RecordedPins()
    """The pins that pinner made on these guests (by UUID)."""
    sets: NovaSets = NovaSets()
    """Of pinner's configuration. A missing set is read from ``nova``."""
    nova: NovaConf | None = None
    owners: AffinityOwners = NO_OWNERS
    minimum_cores: int = 1
    weights: Mapping[str, float] = field(default_factory=dict)
    ovs_masks: Callable[[], OvsMasks] = OvsMasks
    ask_guests: AskGuests | None = None
    """None: no guest is asked."""
    scanner: Scanner | None = None
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic

    def nova_sets(self) -> NovaSets:
        with suppress(Invalid):
            return configured(self.sets, self.nova)
        return self.sets


def take_snapshot(
    root: Path,
    host: str,
    libvirt: Guests | None,
    *,
    sample_seconds: float,
    now: Callable[[], datetime],
    inputs: SnapshotInputs = SnapshotInputs(),
    only: Collection[TargetKind] | None = None,
) -> Snapshot:
    """Loads are measured over ``sample_seconds`` (0: not), not on a captured machine. ``only`` names what is read,
    kinds of settings and ``memory`` of guests (None: all, with warnings). Raises Invalid without CPUs, HostUnreachable,
    NotPermitted."""
    sample_seconds = sample_seconds if root == LIVE else 0.0
    packets, began = received(root) if sample_seconds else {}, inputs.clock()
    processes = (inputs.scanner or Scanner(root)).sample(sample_seconds, inputs.sleep, inputs.clock)
    topology = read_topology(root)
    guests = _guests(root, libvirt, inputs, memory=only is None or "memory" in only)
    governors = {cpu.id: cpu.governor for cpu in topology.cpus if cpu.governor}
    facts = Facts(
        root,
        processes=processes,
        balancers=read_balancers(root, processes),
        guests=guests,
        governors=governors,
        ask_guests=inputs.ask_guests,
    )
    taken = _without_settings(facts, host, topology, inputs, now)
    taken = replace(
        taken,
        sample_seconds=sample_seconds,
        warnings=(*_warnings(root, topology, libvirt), *_unread(guests)) if only is None else (),
        inactive=libvirt.inactive() if libvirt else (),
        **table.read(facts, SETTINGS if only is None else only),
        refused=tuple(facts.refused),
    )
    if not packets or taken.coalescing is None:
        return taken
    return with_packet_rates(taken, packets, received(root), inputs.clock() - began)


def _without_settings(
    facts: Facts, host: str, topology: Topology, inputs: SnapshotInputs, now: Callable[[], datetime]
) -> Snapshot:
    baseline, sets = baseline_of(facts.root, topology, inputs.placed), inputs.nova_sets()
    processes = _processes(facts, topology, baseline, inputs)
    return Snapshot(
        host=host,
        taken_at=now(),
        sample_seconds=0.0,
        topology=topology,
        guests=facts.guests,
        processes=processes,
        baseline=baseline,
        dedicated=sets.dedicated,
        shared=sets.shared,
        nova=inputs.nova,
        placed=inputs.placed,
        minimum_cores=inputs.minimum_cores,
        boot=boot_id(facts.root),
        ovs=ovs.dpdk(processes, inputs.ovs_masks()),
        weights=dict(inputs.weights),
    )


def _processes(facts: Facts, topology: Topology, baseline: CpuSet, inputs: SnapshotInputs) -> tuple[Process, ...]:
    classified = classify(
        facts.processes,
        guests={guest.pid for guest in facts.guests},
        own=inputs.own,
        forbidden=inputs.forbidden,
        baseline=baseline,
        placed=inputs.placed,
        online=topology.online,
    )
    uptime = time.clock_gettime(time.CLOCK_BOOTTIME) if facts.root == LIVE else None
    return with_reservations(facts.root, classified, inputs.owners, uptime)


def _guests(root: Path, libvirt: Guests | None, inputs: SnapshotInputs, *, memory: bool) -> tuple[Guest, ...]:
    guests = libvirt.guests(root, memory=memory) if libvirt else ()
    guests = tuple(with_forbidden(guest, inputs.forbidden) for guest in guests)
    if not (pinned := {guest.uuid for guest in guests if guest.operator_pins or guest.numa.pins}):
        return guests
    recorded = inputs.pins(pinned)
    return tuple(without_recorded_pins(guest, recorded) if guest.uuid in pinned else guest for guest in guests)


def baseline_of(root: Path, topology: Topology, placed: Collection[CpuSet] = ()) -> CpuSet:
    """The online CPUs of process 1, restricted on purpose only; else, or where pinner placed it, all balanced CPUs."""
    balanced = topology.online - topology.isolated
    try:
        affinity = next(thread.affinity for thread in procfs.threads_of(root, 1) if thread.tid == 1)
    except (Gone, StopIteration):
        return balanced
    return balanced if affinity in placed else affinity & topology.online


def _unread(guests: tuple[Guest, ...]) -> tuple[str, ...]:
    return tuple(
        f"guest {guest.name} is left alone, because it cannot be read: {guest.unread}"
        for guest in guests
        if guest.unread
    )


def _warnings(root: Path, topology: Topology, libvirt: Guests | None) -> tuple[str, ...]:
    warnings = overlaps(root) + contradictions(root, present(root))
    if libvirt:
        try:
            warnings += disagreements.with_libvirt(topology, libvirt.capabilities())
        except Invalid as error:
            warnings += (str(error),)
    return warnings + (disagreements.with_libnuma(topology) if root == LIVE else ())
