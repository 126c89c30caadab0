"""Which guests stay where an operator pinned them, and the CPUs that their pins own (docs/strategies.md)."""

from collections.abc import Iterator
from dataclasses import replace

from pinner.model.cpuset import CpuSet, union
from pinner.model.guest.guest import Guest, OperatorPin
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.model.text import listed
from pinner.planning.available.exclusions import is_excluded_guest, is_named, names

_NAMED = 4


def released(snapshot: Snapshot, request: Request) -> Snapshot:
    """The guests that the request releases have neither a restriction nor an operator's pins, and for live isolation
    no limit by their slice's partition, which the request may change."""
    guests = tuple(_released(guest, request) for guest in snapshot.guests)
    # What is not released stays the same object, because it keeps derived tables.
    return snapshot if guests == snapshot.guests else replace(snapshot, guests=guests)


def _released(guest: Guest, request: Request) -> Guest:
    if request.released_guests and is_named(guest, request.released_guests):
        guest = replace(guest, restriction=CpuSet(), operator_pins=())
    if request.isolation == "live" and guest.cgroups and guest.cgroups[0].state.kind == "root":
        limits = (limit for limit in guest.cpu_limits if limit.path != guest.cgroups[0].path)
        guest = replace(guest, cpu_limits=tuple(limits))
    return guest


def is_left_to_operator(guest: Guest, request: Request) -> bool:
    named = is_named(guest, request.guests) or is_named(guest, request.released_guests)
    return not guest.dedicated and not named and bool(pins_of(guest))


def pins_of(guest: Guest) -> tuple[OperatorPin, ...]:
    """Also real-time vCPUs that its definition restricts: they stop every other thread on these CPUs."""
    if not guest.restriction:
        return guest.operator_pins
    pinned = {pin.part for pin in guest.operator_pins if pin.kind == "vcpu"}
    return guest.operator_pins + tuple(
        OperatorPin("vcpu", vcpu, guest.restriction, "definition") for vcpu in _realtime(guest) if vcpu not in pinned
    )


def owned(snapshot: Snapshot, request: Request) -> dict[str, CpuSet]:
    """By UUID: the online CPUs of pins that vCPUs use alone, also at the next start only. These are CPUs with a pinned
    vCPU for each core or more, of whichever guests, and those of real-time vCPUs. Pools of several cores own none where
    these would leave no whole core: the widest ones first."""
    cores, pins = snapshot.topology.online_cores, list(vcpu_pins(snapshot, request))

    def is_full(cpus: CpuSet) -> bool:
        vcpus = {(guest.uuid, vcpu) for guest, vcpu, mask in pins if mask <= cpus}
        return len(vcpus) >= len({cores[cpu].lowest for cpu in cpus})

    full = {mask for mask in {mask for _, _, mask in pins} if len(mask) == 1 or is_full(mask)}
    polled = snapshot.ovs.cpus if snapshot.ovs else CpuSet()
    usable = snapshot.topology.online - snapshot.topology.isolated - snapshot.nova_owns().dedicated - polled
    pools = (mask for mask in full if mask & usable and not mask <= cores[mask.lowest])
    for pool in sorted(pools, key=lambda mask: (-len(mask), list(mask))):
        left = usable - union(full)
        if any(cores[cpu] <= left for cpu in left):
            break
        full.remove(pool)
    by_guest: dict[str, CpuSet] = {}
    for guest, vcpu, mask in pins:
        if mask in full or vcpu in _realtime(guest):
            by_guest[guest.uuid] = by_guest.get(guest.uuid, CpuSet()) | mask
    return by_guest


def beside_vcpus(snapshot: Snapshot, request: Request) -> Iterator[tuple[Guest, OperatorPin, CpuSet]]:
    """Pins of QEMU's own threads to one core, with its CPUs, of guests whose vCPUs own other CPUs."""
    own, topology = owned(snapshot, request), snapshot.topology
    for guest, pin, mask in _pins(snapshot, request):
        cpus = mask - own.get(guest.uuid, mask)
        if pin.kind != "vcpu" and cpus and cpus <= topology.online_cores[cpus.lowest]:
            yield guest, pin, cpus


def vcpu_pins(snapshot: Snapshot, request: Request) -> Iterator[tuple[Guest, int | None, CpuSet]]:
    """Of the guests and parts that the request leaves alone, online."""
    return ((guest, pin.part, cpus) for guest, pin, cpus in _pins(snapshot, request) if pin.kind == "vcpu")


def qemus_own_pins(snapshot: Snapshot, request: Request) -> dict[str, CpuSet]:
    """By UUID: the online CPUs of emulators and iothreads of such guests, without those that their vCPUs own."""
    by_guest, own = dict[str, CpuSet](), owned(snapshot, request)
    for guest, pin, cpus in _pins(snapshot, request):
        if pin.kind != "vcpu" and (cpus := cpus - own.get(guest.uuid, CpuSet())):
            by_guest[guest.uuid] = by_guest.get(guest.uuid, CpuSet()) | cpus
    return by_guest


def _pins(snapshot: Snapshot, request: Request) -> Iterator[tuple[Guest, OperatorPin, CpuSet]]:
    for guest in released(snapshot, request).guests:
        if guest.dedicated:
            continue
        stays = is_left_to_operator(guest, request) or is_excluded_guest(guest, request)
        for pin in pins_of(guest) if stays or request.placement else ():
            if (stays or not _is_placed(pin, guest, snapshot, request)) and (
                cpus := pin.cpus & snapshot.topology.online
            ):
                yield guest, pin, cpus


def _is_placed(pin: OperatorPin, guest: Guest, snapshot: Snapshot, request: Request) -> bool:
    """By hand."""
    return any(
        placed.kind in ("all", pin.kind)
        and placed.part in (None, pin.part)
        and names(placed.owner, guest.target, snapshot)
        for placed in request.placement
    )


def pins_in_words(guest: Guest) -> str:
    defined = [pin for pin in pins_of(guest) if pin.written == "definition"]
    pins = defined or guest.operator_pins
    parts = [f"{pin.kind}{'' if pin.part is None else f' {pin.part}'} to {pin.cpus}" for pin in pins]
    where = "in its definition" if defined else "through libvirt while it runs"
    return f"an operator pinned it {where}: {listed(parts, _NAMED)}"


def _realtime(guest: Guest) -> list[int]:
    return [vcpu.id for vcpu in guest.vcpus if vcpu.thread and vcpu.thread.realtime]
