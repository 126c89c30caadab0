"""The pins that pinner itself set. libvirt and the kernel report them too, and pinner ignores those events."""

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import TargetKind


class OwnPins:
    """pinner's latest pin of each part of a guest. They are in memory only: after a restart pinner checks its own pins
    once more and finds them correct."""

    def __init__(self) -> None:
        self._pins: dict[str, dict[tuple[TargetKind, int | None], CpuSet]] = {}

    def add(self, target: Target, cpus: CpuSet) -> None:
        """Record a pin. The caller adds it before libvirt is called, so that the event cannot come earlier."""
        self._pins.setdefault(target.owner, {})[target.kind, target.part] = cpus

    def forget(self, guest: str) -> None:
        """Remove the pins of a guest (by UUID) that has ended."""
        self._pins.pop(guest, None)

    def has(self, guest: str, kind: TargetKind, part: int | None, cpus: CpuSet) -> bool:
        """Whether pinner's latest pin of this part of the guest has these CPUs."""
        return self._pins.get(guest, {}).get((kind, part)) == cpus
