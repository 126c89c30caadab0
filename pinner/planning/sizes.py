"""Other sizes of the automatic sets than the load needs (docs/strategies.md)."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from pinner.model.errors import Invalid, NoFit
from pinner.model.plan.plan import Roles
from pinner.planning.available import slices
from pinner.planning.available.roles import Resolved
from pinner.planning.request.context import Context


def others(context: Context) -> Iterator[tuple[Context, Resolved]]:
    """The larger ones first, then those with less than a step."""
    for steps in sorted(slices.every_size(context.request), key=lambda steps: (0 in steps, sum(steps))):
        other = replace(context, allocatable=replace(context.allocatable, steps=steps))
        with suppress(Invalid, NoFit):
            yield other, other.resolve(isolating=other.allocatable.isolating)


def standing(context: Context) -> Iterator[Context]:
    """Of sets on which the host's daemons and QEMU's own threads are now."""
    return (other for other, resolved in others(context) if _stands(other, resolved))


def smaller(context: Context, roles: Roles) -> Iterator[Context]:
    """That hold their load and leave vCPUs more CPUs, the largest sets first; none where vCPUs get isolated CPUs: sets
    beside live partitions follow the number of guests."""
    if context.allocatable.isolating:
        return
    now = context.allocatable.demand
    for other, resolved in reversed([*others(context)]):
        sets = resolved.roles
        if len(sets.vcpu) > len(roles.vcpu) and all(
            len(after) <= len(before) and not slices.is_full(load, after)
            for load, before, after in (
                (now.housekeeping, roles.housekeeping, sets.housekeeping),
                (now.emulator, roles.emulator, sets.emulator),
            )
        ):
            yield other


def _stands(context: Context, resolved: Resolved) -> bool:
    now, emulators = context.allocatable.demand, (resolved.roles.emulator, *resolved.emulator_on.values())
    daemons = not now.housekeeping_now or resolved.roles.housekeeping in now.housekeeping_now
    return daemons and any(map(now.has_emulators, emulators))
