"""Other sizes of the automatic sets than the load needs (docs/strategies.md)."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

from pinner.model.errors import Invalid, NoFit
from pinner.model.plan.plan import Roles
from pinner.planning.available import slices
from pinner.planning.available.roles import Resolved
from pinner.planning.request.context import Context


@dataclass(frozen=True)
class Sizes:
    """Without slots, so that the sets are resolved once."""

    context: Context

    @cached_property
    def others(self) -> tuple[tuple[Context, Resolved], ...]:
        """The larger ones first, then those with less than a step; of equal sets one."""
        context, found = self.context, dict[Roles, tuple[Context, Resolved]]()
        for steps in sorted(slices.every_size(context.request), key=lambda steps: (0 in steps, sum(steps))):
            other = replace(context, allocatable=replace(context.allocatable, steps=steps))
            with suppress(Invalid, NoFit):
                resolved = other.resolve(isolating=other.allocatable.isolating, apart=other.allocatable.apart)
                found.setdefault(resolved.roles, (other, resolved))
        return tuple(found.values())

    def standing(self) -> Iterator[Context]:
        """Of sets on which the host's daemons and QEMU's own threads are now."""
        return (other for other, resolved in self.others if _stands(other, resolved))

    def smaller(self, roles: Roles) -> list[tuple[Context, Resolved]]:
        """That hold their load and leave vCPUs more CPUs, the largest sets first; none where vCPUs get isolated CPUs:
        sets beside live partitions follow the number of guests."""
        if self.context.allocatable.isolating:
            return []
        now, found = self.context.allocatable.demand, list[tuple[Context, Resolved]]()
        for other, resolved in reversed(self.others):
            sets = resolved.roles
            if len(sets.vcpu) > len(roles.vcpu) and all(
                len(after) <= len(before) and not slices.is_full(load, after)
                for load, before, after in (
                    (now.housekeeping, roles.housekeeping, sets.housekeeping),
                    (now.emulator, roles.emulator, sets.emulator),
                )
            ):
                found.append((other, resolved))
        return found


def _stands(context: Context, resolved: Resolved) -> bool:
    now, emulators = context.allocatable.demand, (resolved.roles.emulator, *resolved.emulator_on.values())
    daemons = not now.housekeeping_now or resolved.roles.housekeeping in now.housekeeping_now
    return daemons and any(map(now.has_emulators, emulators))


def sparing(context: Context) -> Iterator[Context]:
    """With an automatic emulator set on one of two nodes. Of more nodes, each plan would find others to leave out: the
    guests are elsewhere then; and vCPUs on isolated CPUs need none of these."""
    allocatable = context.allocatable
    for cpus in allocatable.nodes.values() if len(allocatable.nodes) == 2 and not allocatable.isolating else ():
        yield replace(context, allocatable=replace(allocatable, spared=cpus))
