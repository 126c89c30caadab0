"""Whether a plan still fits its host: which of its changes are still to be made, and why it may be stale."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict

from pinner.apply import steps
from pinner.apply.ports import Host, Part
from pinner.model.change import PlannedChange, Target
from pinner.model.errors import Blocked, Gone, Invalid, PinnerError, StalePlan
from pinner.model.guest.nova import Bounds, require_clear
from pinner.model.kinds import ALONE, INSIDE, PINNED, SETTINGS
from pinner.model.plan.plan import Plan


def changes_to_make(
    plan: Plan, host: Host, unread: Collection[str] = (), *, persist: bool
) -> tuple[PlannedChange, ...]:
    """All changes of the plan, or none if all are made. What libvirt does not tell of ``unread`` guests (by UUID) makes
    no plan stale.

    Raises Blocked; NovaConflict if the plan uses CPUs that Nova owns now; StalePlan, with ``persist`` also if all
    changes are made; with ``persist`` Invalid if a guest is transient or pinned by Nova.
    """
    if plan.blocked:
        raise Blocked(plan.id, plan.blocked)
    if host.fingerprint() != plan.basis.fingerprint:
        raise StalePlan(plan.id, ("the host's CPUs, nodes or kernel arguments have changed",))
    bounds = host.bounds() if plan.wanted and plan.purpose == "place" else Bounds()
    require_clear(plan.wanted, bounds.nova, emulators=plan.request.nova_emulators)
    gone: list[str] = []
    inspected: list[tuple[Target, steps.Inspection]] = []
    pending = False
    # A guest may not answer: it is asked last.
    for change in sorted(plan.changes, key=lambda change: change.target.kind in INSIDE):
        if pending and change.target.kind in INSIDE:
            continue
        try:
            inspection = _inspected(change, host)
        except Gone as error:
            # A guest that has ended frees CPUs that the plan does not use.
            gone += [str(error)] if change.target.kind not in ALONE else []
            continue
        inspected.append((change.target, inspection))
        pending = pending or not inspection.is_made
    if gone or pending or persist:
        stale = [(target, differences) for target, inspection in inspected if (differences := inspection.stale())]
        moved = [text for _, differences in stale for text in differences]
        if plan.purpose == "place":  # a release restores only parts that pinner has placed
            moved += (*_plugged_in(plan, host), *dict.fromkeys(_limited(plan, host)))
        moved += _newly_excluded(plan.changes, bounds.excluded.difference(unread))
        if gone or moved:
            raise StalePlan(plan.id, (*gone, *moved), tuple(asdict(target) for target, _ in stale))
    if persist:
        _require_definitions((planned for planned in plan.changes if planned.target.owner not in unread), bounds, host)
    return () if inspected and not pending else plan.changes


def _inspected(change: PlannedChange, host: Host) -> steps.Inspection:
    """A setting that cannot be read now counts as not changed: the run reads it again, and fails for it alone. Raises
    Gone."""
    try:
        return steps.inspect(change, host)
    except PinnerError as error:
        if isinstance(error, Gone) or change.target.kind not in SETTINGS:
            raise
        return steps.Inspection(is_made=False, stale=tuple)


def _plugged_in(plan: Plan, host: Host) -> Iterator[str]:
    """Since the plan was made; without vCPUs of guests that Nova pinned."""
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


def _limited(plan: Plan, host: Host) -> Iterator[str]:
    """Cgroups that allow the plan's guests other CPUs than then."""
    for guest in dict.fromkeys(want.target.owner for want in plan.wanted if want.target.kind in PINNED):
        with suppress(Gone):
            then, now = (
                {limit.path: limit for limit in limits}
                for limits in (plan.basis.cpu_limits.get(guest, ()), host.cpu_limits(guest))
            )
            for path in {**then, **now}:
                if then.get(path) != now.get(path):
                    allows = f"allows CPUs {now[path].cpus}" if path in now else "leaves out no CPU"
                    before = f", no longer {then[path].cpus}" if path in then else ""
                    yield f"{now.get(path, then.get(path))} {allows}{before}"


def _newly_excluded(changes: Iterable[PlannedChange], excluded: Collection[str]) -> Iterator[str]:
    guests = {change.target.owner: change.target.name for change in changes}
    return (f"guest {name} is excluded by its metadata" for guest, name in guests.items() if guest in excluded)


def _require_definitions(changes: Iterable[PlannedChange], bounds: Bounds, host: Host) -> None:
    guests = {change.target.owner: change.target.name for change in changes if change.target.kind in PINNED}
    theirs = {guest.uuid for guest in bounds.nova.guests} | bounds.cells
    for guest, name in guests.items():
        if guest in theirs:
            # pinner would overwrite Nova's pins there, or later read its own pin as a pin of Nova.
            raise Invalid("persist", name, "a guest that Nova did not pin: Nova manages the persistent XML", guest=name)
        if not host.guests.persistent(guest):
            raise Invalid("persist", name, "a guest with a persistent definition; this one is transient", guest=name)
