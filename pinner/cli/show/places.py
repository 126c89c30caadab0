"""CPU masks and targets in the few words that fit into a table cell."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pinner.model.kinds import KINDS
from pinner.model.text import affinities, ranges
from pinner.render import before_and_after

if TYPE_CHECKING:
    from pinner.model.change import PlannedChange, Target
    from pinner.model.cpuset import CpuSet

SHOWN = 3
"""Masks that a cell names; the others are counted."""


def masks(sets: Iterable["CpuSet"]) -> str:
    """``0-31`` where all threads have the same mask, else the commonest masks with their numbers of threads."""
    return affinities(sets, SHOWN)


def part(targets: Iterable["Target"]) -> str:
    """The parts of one owner's targets of one kind: ``vCPU 0-15``, ``emulator``, ``process 812``."""
    targets = tuple(targets)
    first = targets[0]
    numbers = ranges(target.part for target in targets if target.part is not None)
    return KINDS[first.kind].parts.format(kind=first.kind, owner=first.owner, parts=numbers)


def alike(changes: Iterable["PlannedChange"]) -> list[list["PlannedChange"]]:
    """The changes in groups: neighbours of one owner and kind, with the same CPUs before and after and one reason."""
    groups: list[list[PlannedChange]] = []
    last: tuple[object, ...] = ()
    for change in changes:
        likeness = _likeness(change)
        if likeness == last and change.target.kind != "process":
            groups[-1].append(change)
        else:
            groups.append([change])
        last = likeness
    return groups


def _likeness(change: "PlannedChange") -> tuple[object, ...]:
    return (change.target.kind, change.target.owner, *before_and_after(change), change.reason)
