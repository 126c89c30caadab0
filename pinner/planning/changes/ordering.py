"""The order in which guests leave their CPUs before others get them: no CPU is the only CPU of vCPUs of two guests in
between. Where guests exchange CPUs, there is no such order."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from pinner.model.change import AffinityChange, PlannedChange, Target


def ranks(changes: Iterable[PlannedChange]) -> dict[str, int]:
    """By UUID; guests without an order are the last."""
    ordered, stuck = _ordered(changes)
    return {uuid: position for position, uuid in enumerate((*ordered, *stuck))}


def exchanging(changes: Iterable[PlannedChange]) -> tuple[Target, ...]:
    """A vCPU of each guest without an order."""
    changes = tuple(changes)
    _, stuck = _ordered(changes)
    if not stuck:
        return ()
    targets = {change.target.owner: change.target for change in changes if change.target.kind == "vcpu"}
    return tuple(targets[uuid] for uuid in stuck)


def warning(changes: Iterable[PlannedChange]) -> str:
    if not (guests := exchanging(changes)):
        return ""
    names = ", ".join(sorted(target.name for target in guests))
    return f"guests {names} exchange CPUs: while the plan is applied, vCPUs of two guests share a CPU for a moment"


def _ordered(changes: Iterable[PlannedChange]) -> tuple[list[str], list[str]]:
    return valid_order(
        _waits([each for each in changes if isinstance(each, AffinityChange) and each.target.kind == "vcpu"])
    )


def valid_order(waits: Mapping[str, Collection[str]]) -> tuple[list[str], list[str]]:
    """The guests, each after those for which it waits, and the guests without such an order."""
    if not any(waits.values()):
        return list(waits), []
    left, ordered = dict.fromkeys(waits), []
    while ready := next((uuid for uuid in left if left.keys().isdisjoint(waits[uuid])), None):
        ordered.append(ready)
        del left[ready]
    return ordered, list(left)


def _waits(vcpus: Sequence[AffinityChange]) -> Mapping[str, Collection[str]]:
    owners = dict.fromkeys([change.target.owner for change in vcpus])
    leaving = {
        bits: change.target.owner
        for change in vcpus
        for mask in change.before
        if (bits := mask.cpus.bits).bit_count() == 1 and bits != change.after.bits
    }
    if not leaving:
        return dict.fromkeys(owners, ())
    waits: dict[str, set[str]] = {owner: set() for owner in owners}
    for change in vcpus:
        other = leaving.get(change.after.bits, change.target.owner)
        if other != change.target.owner:
            waits[change.target.owner].add(other)
    return waits
