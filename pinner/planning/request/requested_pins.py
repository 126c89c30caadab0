"""Which targets of a host the pins of a request name (Request.placement)."""

from collections.abc import Iterator
from itertools import chain

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid
from pinner.model.plan.request import RequestedPin
from pinner.planning.request.context import Context


def pins_by_target(context: Context) -> dict[Target, tuple[RequestedPin, ...]]:
    """Of those that the host has now; two where they name one target, by name and by UUID or pid."""
    pins: dict[Target, tuple[RequestedPin, ...]] = {}
    for pin in context.request.placement:
        for target in _targets(pin, context):
            pins[target] = (*pins.get(target, ()), pin)
    return pins


def require_placeable(context: Context) -> None:
    """Raises Invalid where a pin names nothing that pinner may place."""
    named = set(chain.from_iterable(pins_by_target(context).values()))
    for pin in context.request.placement:
        if pin not in named:
            raise Invalid("placement", str(pin), _expected(pin, context))


def _targets(pin: RequestedPin, context: Context) -> Iterator[Target]:
    if pin.kind == "process":
        yield from (move.target for move in context.moving if _names(pin, move.target, context))
        return
    guests = (guest for guest in context.guests if _names(pin, guest.target, context))
    for target in (target for guest in guests for target in guest.threads_by_target):
        beside = pin.kind == "emulator" and target.kind == "vhost"
        if pin.kind == "all" or beside or (target.kind, target.part) == (pin.kind, pin.part):
            yield target


def _names(pin: RequestedPin, target: Target, context: Context) -> bool:
    """An id names nobody else: any user may name a process or a guest like the id of another one."""
    snapshot = context.snapshot
    if target.kind == "process":
        ids = {str(process.pid) for process in snapshot.processes}
    else:
        ids = {guest.uuid for guest in snapshot.guests} | {guest.uuid for guest in snapshot.inactive}
    return pin.owner == target.owner or (pin.owner == target.name and pin.owner not in ids)


def _expected(pin: RequestedPin, context: Context) -> str:
    whole = [left for left in context.skipped if left.target.kind in ("guest", "process") and not left.threads]
    for left in whole:
        if _names(pin, left.target, context):
            return f"a {left.target.kind} that pinner may place; {left.why}"
    guests = (guest for guest in context.guests if _names(pin, guest.target, context))
    parts = CpuSet.of(target.part or 0 for g in guests for target in g.threads_by_target if target.kind == pin.kind)
    return f"a part that the guest has now; its parts of the kind {pin.kind}: {parts or 'none'}"
