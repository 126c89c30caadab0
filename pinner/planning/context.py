"""What a strategy gets to see: a snapshot, read for one request."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pinner.model.errors import NotFound
from pinner.model.guest import Guest
from pinner.model.plan import LeftOut, Target
from pinner.model.process import Thread
from pinner.model.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.partitions import settings
from pinner.planning.processes import Moving, moving, staying, supply_of
from pinner.planning.supply import Supply, pinned


@dataclass(frozen=True, slots=True)
class Context:
    """A host as a request divides it into what is ours to place and what is not."""

    snapshot: Snapshot
    request: Request
    supply: Supply
    guests: tuple[Guest, ...]
    """Those to place: the largest first, so that small ones fill the gaps; then by UUID."""
    others: tuple[Guest, ...]
    """Those to leave alone: not asked for, or pinned by Nova."""
    moving: tuple[Moving, ...]
    """The processes to place."""
    threads: Mapping[Target, tuple[Thread, ...]]
    """Everything that may be placed, with the threads that this concerns."""
    settings: Mapping[Target, str]
    """What has a state instead of threads, with its state."""
    left_alone: tuple[LeftOut, ...]

    @classmethod
    def of(cls, snapshot: Snapshot, request: Request) -> "Context":
        """Read a snapshot. Raises NotFound for a guest or process that is asked for and not there."""
        asked = _asked(snapshot, request)
        ours = [guest for guest in asked if not guest.dedicated]
        theirs = [guest for guest in asked if guest.dedicated]
        chosen = {guest.uuid for guest in ours}
        moves = tuple(moving(snapshot, request))
        threads = {target: threads for guest in ours for target, threads in guest_targets(guest)}
        supply = supply_of(snapshot, request)
        return cls(
            snapshot=snapshot,
            request=request,
            supply=supply,
            guests=tuple(sorted(ours, key=lambda guest: (-len(plugged(guest)), guest.uuid))),
            others=tuple(guest for guest in snapshot.guests if guest.uuid not in chosen),
            moving=moves,
            threads=threads | {move.target: move.threads for move in moves},
            settings=settings(snapshot),
            left_alone=(
                *(
                    LeftOut(f"guest {guest.name}", f"Nova dedicates CPUs {pinned(guest, supply.online)} to it")
                    for guest in theirs
                ),
                *staying(snapshot, request),
            ),
        )


def plugged(guest: Guest) -> list[int]:
    """The numbers of the vCPUs that have a thread."""
    return [vcpu.id for vcpu in guest.vcpus if vcpu.thread is not None]


def guest_targets(guest: Guest) -> Iterator[tuple[Target, tuple[Thread, ...]]]:
    """All of a guest that has an affinity of its own, with its threads; what has no thread now is left out."""
    if guest.emulator.threads:
        yield Target("emulator", guest.uuid, None, guest.name), guest.emulator.threads
    for helper in guest.helpers:
        yield Target("helper", guest.uuid, helper.tid, guest.name), (helper,)
    for iothread in guest.iothreads:
        if iothread.thread:
            yield Target("iothread", guest.uuid, iothread.id, guest.name), (iothread.thread,)
    for vcpu in guest.vcpus:
        if vcpu.thread:
            yield Target("vcpu", guest.uuid, vcpu.id, guest.name), (vcpu.thread,)


def _asked(snapshot: Snapshot, request: Request) -> list[Guest]:
    for name in request.guests:
        if not any(name in (guest.uuid, guest.name) for guest in snapshot.guests):
            raise NotFound("guest", name, tuple(sorted(guest.name for guest in snapshot.guests)))
    return [
        guest
        for guest in snapshot.guests
        if not request.guests or guest.name in request.guests or guest.uuid in request.guests
    ]
