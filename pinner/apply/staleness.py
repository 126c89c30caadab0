"""Whether a plan still fits the host. Reads only."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress

from pinner.apply.ports import Host, Part
from pinner.model.bounds import Bounds
from pinner.model.change import PINNED, SETTINGS, Change, ThreadMask
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Blocked, Gone, Invalid, StalePlan
from pinner.model.nova import NovaOwns, require_clear
from pinner.model.plan import Plan


def key(thread: ThreadMask) -> tuple[int, int]:
    """What names a thread: its id and its start time."""
    return thread.tid, thread.started


def masks_of(threads: Iterable[ThreadMask]) -> dict[tuple[int, int], CpuSet]:
    """Each thread's mask by what names the thread."""
    return {key(thread): thread.cpus for thread in threads}


def check(plan: Plan, host: Host, *, persist: bool) -> tuple[Change, ...]:
    """The changes to make: those of the plan, or none where all of them are in place already.

    Raises Blocked, NovaConflict where the plan crosses what Nova owns by now, StalePlan with everything that moved
    (with ``persist`` also where all is in place: a definition is written only together with its live pin), and Invalid
    where ``persist`` is asked of a transient guest, or of one that Nova pinned.
    """
    if plan.blocked:
        raise Blocked(plan.id, plan.blocked)
    if host.fingerprint() != plan.basis.fingerprint:
        raise StalePlan(plan.id, ("the host's CPUs, nodes or kernel arguments are others now",))
    bounds = host.bounds() if plan.wanted and plan.hands_out else Bounds()
    require_clear(plan.wanted, bounds.nova, emulators=plan.request.nova_emulators)
    gone: list[str] = []
    moved: list[str] = []
    alive = pending = False
    for change in plan.changes:
        try:
            if change.target.kind in SETTINGS:
                state = host.state(change.target)
                pending = pending or state != change.states[1]
                moved += altered(change, state)
                alive = True
                continue
            threads = host.masks(change.target)
        except Gone as error:
            # A process that has ended needs no place; a guest that has makes room which the plan does not use.
            gone += [str(error)] if change.target.kind != "process" else []
            continue
        alive = True
        pending = pending or any(thread.cpus != change.after for thread in threads)
        moved += differences(change, threads)
    moved += born(plan, host)
    moved += marked(plan.changes, bounds.excluded)
    if gone or (moved and (pending or persist)):
        raise StalePlan(plan.id, (*gone, *moved))
    if persist:
        _require_definitions(plan.changes, bounds.nova, host)
    return () if alive and not pending else plan.changes


def born(plan: Plan, host: Host) -> Iterator[str]:
    """The vCPUs and iothreads that were plugged into the plan's guests since, in words: it has no place for them. Of a
    guest that Nova pinned the plan places no vCPU at all."""
    guests: dict[str, str] = {}
    planned: dict[str, set[Part]] = {}
    for target in (want.target for want in plan.wanted if want.target.kind in PINNED):
        guests[target.owner] = target.name
        if target.part is not None:
            planned.setdefault(target.owner, set()).add((target.kind, target.part))
    for guest, name in guests.items():
        with suppress(Gone):
            known = planned.get(guest, set())
            ours = {kind for kind, _ in known} | {"iothread"}
            for kind, number in sorted(part for part in host.parts(guest) - known if part[0] in ours):
                yield f"guest {name} {kind} {number} was plugged in"


def marked(changes: Iterable[Change], excluded: Collection[str]) -> Iterator[str]:
    """The guests to be changed that were marked since as ones whose CPUs are left alone, in words."""
    guests = {change.target.owner: change.target.name for change in changes}
    return (f"guest {name} is to be left alone" for guest, name in guests.items() if guest in excluded)


def altered(change: Change, state: str) -> Iterator[str]:
    """What is not as a change of a state expects it, in words."""
    if state != change.states[0]:
        yield f"{change.target} is {state!r}, no longer {change.states[0]!r}"


def differences(change: Change, threads: Sequence[ThreadMask]) -> Iterator[str]:
    """What is not as the change expects it, in words. Threads that ended, and threads that others of the target gave
    birth to, are expected."""
    before = masks_of(change.before)
    familiar = {*before.values(), change.after}
    if change.target.kind != "process" and not any(key(thread) in before for thread in threads):
        yield f"{change.target} has other threads: it was started anew"
        return
    for thread in threads:
        known = before.get(key(thread))
        if known is not None and thread.cpus != known:
            yield f"{change.target} thread {thread.tid} may run on {thread.cpus}, no longer on {known}"
        if known is None and change.target.kind != "process" and thread.cpus not in familiar:
            yield f"{change.target} has a new thread {thread.tid} on {thread.cpus}"


def _require_definitions(changes: Iterable[Change], owns: NovaOwns, host: Host) -> None:
    guests = {change.target.owner: change.target.name for change in changes if change.target.kind in PINNED}
    theirs = {guest.uuid for guest in owns.guests}
    for guest, name in guests.items():
        if guest in theirs:
            # A pin of ours there would be taken for one of Nova's ever after.
            raise Invalid("persist", name, "a guest that Nova did not pin: its definition is Nova's word", guest=name)
        if not host.persistent(guest):
            raise Invalid("persist", name, "a guest with a persistent definition; this one is transient", guest=name)
