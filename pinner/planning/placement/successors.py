"""Settings that end with the boot of a guest or with a process: their successors are other targets."""

from collections.abc import Iterable

from pinner.model.change import Target, TargetKey
from pinner.model.kinds import INSIDE, KINDS
from pinner.model.plan.groups import group_of


def subject(target: Target) -> TargetKey | None:
    """What stays when such a setting ends: the guest, or irqbalance itself. None for all other targets."""
    if target.kind in INSIDE:
        return group_of(target)
    kind = KINDS[target.kind]
    return TargetKey(target.kind, "", None) if kind.state and kind.ends_with_process else None


def subjects(targets: Iterable[Target]) -> frozenset[TargetKey]:
    """The subjects of all these targets that have one."""
    return frozenset(found for target in targets if (found := subject(target)) is not None)
