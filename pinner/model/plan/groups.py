"""Groups of changes, which a run makes or undoes together: those of a guest, those inside of it, or one other
target."""

from collections.abc import Iterable, Iterator, Sequence

from pinner.model.change import AffinityChange, Change, Target, TargetKey
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import KINDS

Group = TargetKey
"""The key of a target; for a guest's changes ``("guest", UUID, None)``, for those inside ``("guest_rps", UUID,
None)``."""


def group_of(target: Target) -> Group:
    match KINDS[target.kind].group:
        case "guest":
            return TargetKey("guest", target.owner, None)
        case "inside":
            # A guest that does not answer is asked once, whatever number of queues it has.
            return TargetKey(target.kind, target.owner.partition(" ")[0], None)
        case "own":
            return target.key


def guests_of(targets: Iterable[Target]) -> dict[str, str]:
    """UUID to name."""
    return {target.owner: target.name for target in targets if group_of(target).kind == "guest"}


def group_name(target: Target) -> str:
    return f"guest {target.name}" if group_of(target).kind == "guest" else str(target)


def is_of_the_host(target: Target) -> bool:
    return KINDS[target.kind].is_for_all_guests


def others_that_move(target: Target) -> str:
    """QEMU does not change its own affinity."""
    return "the process or another program" if target.kind == "process" else "another program"


def are_independent(changes: Iterable[Change]) -> bool:
    """A change of the host itself, such as a partition, is made for all groups."""
    return not any(is_of_the_host(change.target) for change in changes)


def contiguous(changes: Sequence[Change]) -> tuple[Change, ...]:
    """The groups keep the order of their first changes of vCPUs, in which a guest leaves its CPUs before another one
    gets them; a group without vCPUs has the place of its first change."""
    first: dict[Group, int] = {}
    for vcpus in (True, False):
        for position, change in enumerate(changes):
            if not vcpus or change.target.kind == "vcpu":
                first.setdefault(group_of(change.target), position)
    return tuple(sorted(changes, key=lambda change: first[group_of(change.target)]))


def without_room(unmade: Iterable[Change], others: Sequence[Change]) -> Iterator[tuple[int, str]]:
    """Positions of the ``others`` that give a vCPU the only CPU of another vCPU whose change is among the ``unmade``;
    each with the reason why it must not be made."""
    held = {mask: change.target for change in unmade for mask in _left(change)}
    for position, change in enumerate(others):
        if isinstance(change, AffinityChange) and change.target.kind == "vcpu" and change.after in held:
            yield position, f"CPU {change.after} is still in use by {held[change.after]}, which could not be moved"


def _left(change: Change) -> Iterator[CpuSet]:
    """Masks of one CPU that a vCPU was to leave."""
    if isinstance(change, AffinityChange) and change.target.kind == "vcpu":
        yield from (each.cpus for each in change.before if len(each.cpus) == 1 and each.cpus != change.after)
