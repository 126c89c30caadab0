"""Which targets of a host the pins of a request name (Request.placement)."""

from collections.abc import Iterator
from itertools import chain

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid
from pinner.model.plan.request import RequestedPin
from pinner.planning.available.exclusions import names
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
        yield from (move.target for move in context.moving if names(pin.owner, move.target, context.snapshot))
        return
    guests = (guest for guest in context.guests if names(pin.owner, guest.target, context.snapshot))
    for target in (target for guest in guests for target in guest.threads_by_target):
        beside = pin.kind == "emulator" and target.kind == "vhost"
        if pin.kind == "all" or beside or (target.kind, target.part) == (pin.kind, pin.part):
            yield target


def _expected(pin: RequestedPin, context: Context) -> str:
    whole = [left for left in context.skipped if left.target.kind in ("guest", "process") and not left.threads]
    for left in whole:
        if names(pin.owner, left.target, context.snapshot):
            return f"a {left.target.kind} that pinner may place; {left.why}"
    guests = (guest for guest in context.guests if names(pin.owner, guest.target, context.snapshot))
    parts = CpuSet.of(target.part or 0 for g in guests for target in g.threads_by_target if target.kind == pin.kind)
    return f"a part that the guest has now; its parts of the kind {pin.kind}: {parts or 'none'}"
