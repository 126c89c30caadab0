"""Settings that end with the boot of a guest or with a process: their successors are other targets."""

from collections.abc import Iterable

from pinner.model.change import Target, TargetKey
from pinner.model.plan.groups import group_of


def subject(target: Target) -> TargetKey | None:
    """What stays when such a setting ends: the guest, or irqbalance itself. None for all other targets."""
    match target.kind:
        case "guest_rps":
            return group_of(target)
        case "irqbalance":
            return TargetKey(target.kind, "", None)
    return None


def subjects(targets: Iterable[Target]) -> frozenset[TargetKey]:
    """The subjects of all these targets that have one."""
    return frozenset(found for target in targets if (found := subject(target)) is not None)
