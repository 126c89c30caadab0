"""The pins that pinner itself gave: the host tells of them like of any other's, but they are no news."""

from pinner.model.change import Target, TargetKind
from pinner.model.cpuset import CpuSet


class OwnPins:
    """The latest pin of each part of a guest, in this process's lifetime: after a restart pinner's own work is looked
    at once more, and found right."""

    def __init__(self) -> None:
        self._pins: dict[str, dict[tuple[TargetKind, int | None], CpuSet]] = {}

    def add(self, target: Target, cpus: CpuSet) -> None:
        """A part of a guest is about to be pinned."""
        self._pins.setdefault(target.owner, {})[target.kind, target.part] = cpus

    def forget(self, guest: str) -> None:
        """The guest (by UUID) has ended, and its pins with it."""
        self._pins.pop(guest, None)

    def has(self, guest: str, kind: TargetKind, part: int | None, cpus: CpuSet) -> bool:
        """Whether it was pinner who pinned this part of the guest there."""
        return self._pins.get(guest, {}).get((kind, part)) == cpus
