"""The CPUs that a request names for parts of guests and for processes. Everything else stays as it is."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import ClassVar

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid, NovaConflict
from pinner.model.guest.nova import require_clear
from pinner.model.plan.plan import NO_ROLES, LeftOut, Roles, Wanted
from pinner.model.plan.request import MANUAL, RequestedPin
from pinner.planning.objective_terms import SPREAD
from pinner.planning.request.context import Context, vcpu_masks
from pinner.planning.request.requested_pins import pins_by_target
from pinner.planning.strategies import rules
from pinner.planning.strategies.strategy import Answer

_NOTE = "the request names the CPUs of each part"


class Manual:
    name: ClassVar[str] = MANUAL
    summary: ClassVar[str] = (
        "Parts of guests, and processes, get the CPUs that the request names for each (pinner place)."
    )
    parameters: ClassVar[tuple[str, ...]] = ("placement", "guests", "processes")
    pursues: ClassVar[tuple[str, ...]] = tuple(sorted(SPREAD))

    def place(self, context: Context) -> Answer:
        """Raises Invalid for the first pin that breaks a rule, unless the context is lenient. A flavor may ask for it
        in vain."""
        if not context.request.placement:
            left = (
                LeftOut(guest.target, "the request has no placement, which names its CPUs") for guest in context.guests
            )
            return Answer(NO_ROLES, (), tuple(left))
        pins, refused = pins_by_target(context), dict[Target, str]()
        wanted = tuple(
            Wanted(target, pin.cpus, _reason(target, pin.cpus, context)) for target, (pin, *_) in pins.items()
        )
        # A part that is left out keeps its CPUs, which another pin may name.
        while wrong := dict(_wrong(wanted, pins, context)):
            if not context.lenient:
                target, why = next(iter(wrong.items()))
                raise Invalid("placement", str(pins[target][-1]), f"CPUs that this part may have; {why}")
            refused |= wrong
            wanted = tuple(want for want in wanted if want.target not in refused)
        unplaced = tuple(LeftOut(target, f"{pins[target][-1]}: {why}") for target, why in refused.items())
        return Answer(_roles(wanted), wanted, unplaced, tuple(_crowded(wanted, context)))


def _wrong(
    wanted: tuple[Wanted, ...], pins: Mapping[Target, tuple[RequestedPin, ...]], context: Context
) -> Iterator[tuple[Target, str]]:
    """Each pin that breaks a rule beside the others, with the reason."""
    roles, owned, masks = _roles(wanted), _owned(wanted, context), _masks(wanted, context)
    for want in wanted:
        twice = (f"each part once; {pin} names it, too" for pin in pins[want.target][:-1])
        broken = rules.broken(Answer(roles, (want,)), context)
        if why := next(chain(twice, _of_others(want, owned, context), broken, _isolated(want, masks, context)), ""):
            yield want.target, why


def _crowded(wanted: Iterable[Wanted], context: Context) -> Iterator[str]:
    placed, masks = (
        {want.target.owner for want in wanted if want.target.kind == "vcpu"},
        vcpu_masks(context.snapshot, wanted),
    )
    for guest in context.guests:
        cpus = union(masks[guest.vcpu_targets[vcpu]] for vcpu in guest.plugged)
        if guest.uuid in placed and len(cpus) < len(guest.plugged):
            yield f"guest {guest.name}: its {len(guest.plugged)} vCPUs share CPUs {cpus}"


def _reason(target: Target, cpus: CpuSet, context: Context) -> str:
    stays = all(thread.affinity == cpus for thread in context.threads[target])
    return "placed by hand" + ("; it has these CPUs, and its pin becomes pinner's" if stays else "")


def _roles(wanted: Iterable[Wanted]) -> Roles:
    wanted = tuple(wanted)
    processes, vcpus = (union(want.cpus for want in wanted if want.target.kind == kind) for kind in ("process", "vcpu"))
    emulators = union(want.cpus for want in wanted if want.target.kind not in ("process", "vcpu"))
    return Roles(processes, emulators, vcpus, notes=(_NOTE,))


def _owned(wanted: Iterable[Wanted], context: Context) -> dict[Target, CpuSet]:
    """The CPUs that vCPUs have to themselves with this placement, by their guest."""
    guests = {guest.uuid: guest for guest in context.snapshot.guests}
    owned: dict[Target, list[CpuSet]] = {guest.target: [] for guest in guests.values()}
    for target, cpus in vcpu_masks(context.snapshot, wanted).items():
        if len(cpus) == 1 and cpus < context.allocatable.online:
            owned[guests[target.owner].target].append(cpus - guests[target.owner].pooled)
    return {guest: union(sets) for guest, sets in owned.items()}


def _masks(wanted: Iterable[Wanted], context: Context) -> dict[Target, tuple[CpuSet, ...]]:
    """Of all threads of guests with this placement, if CPUs are isolated."""
    if not context.allocatable.isolated:
        return {}
    placed = {want.target: (want.cpus,) for want in wanted}
    parts = (part for guest in context.snapshot.guests for part in guest.threads_by_target.items())
    return {target: placed.get(target) or tuple(thread.affinity for thread in threads) for target, threads in parts}


def _isolated(want: Wanted, masks: Mapping[Target, tuple[CpuSet, ...]], context: Context) -> Iterator[str]:
    """The guest's other vCPUs on isolated CPUs of this part, where the kernel balances no load; and threads of other
    guests that may not run elsewhere: off these CPUs the kernel keeps all others."""
    isolated = context.allocatable.isolated
    for target, cpus in ((target, cpus) for target, each in masks.items() for cpus in each):
        same = target.owner == want.target.owner
        counts = target.kind == "vcpu" and target != want.target if same else cpus <= isolated
        if counts and (both := cpus & want.cpus & isolated):
            yield f"{target} has isolated CPUs {both}"


def _of_others(want: Wanted, owned: dict[Target, CpuSet], context: Context) -> Iterator[str]:
    try:
        require_clear((want,), context.allocatable.nova, emulators=False)
    except NovaConflict as error:
        yield str(error)
    for guest, cpus in owned.items():
        if guest.owner != want.target.owner and (both := cpus & want.cpus):
            yield f"vCPUs of {guest} have CPUs {both} to themselves"
    for process in context.snapshot.processes if want.target.kind == "process" else ():
        if str(process.pid) == want.target.owner and process.cpu_limits:
            limit = process.cpu_limits[-1]
            if not want.cpus <= limit.cpus:
                yield f"{limit} allows CPUs {limit.cpus}"
