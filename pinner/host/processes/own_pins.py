"""The pins that pinner itself set: it ignores their events."""

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import TargetKind


class OwnPins:
    """The latest pin of each part. In memory only: after a restart pinner finds its pins correct."""

    def __init__(self) -> None:
        self._pins: dict[str, dict[tuple[TargetKind, int | None], CpuSet]] = {}

    def add(self, target: Target, cpus: CpuSet) -> None:
        """Before libvirt is called, so that the event cannot come earlier."""
        self._pins.setdefault(target.owner, {})[target.kind, target.part] = cpus

    def forget(self, guest: str) -> None:
        self._pins.pop(guest, None)

    def has(self, guest: str, kind: TargetKind, part: int | None, cpus: CpuSet) -> bool:
        return self._pins.get(guest, {}).get((kind, part)) == cpus
