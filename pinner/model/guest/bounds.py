"""The limits of a plan that allocates CPUs."""

from dataclasses import dataclass, field

from pinner.model.guest.nova import NovaOwns


@dataclass(frozen=True, slots=True)
class Bounds:
    """The CPUs that Nova owns, the excluded guests and the guests with cells of Nova, at one moment."""

    nova: NovaOwns = field(default_factory=NovaOwns)
    excluded: frozenset[str] = frozenset()
    """The active guests (by UUID) that are marked so that pinner does not place them (Guest.excluded)."""
    cells: frozenset[str] = frozenset()
    """The active guests (by UUID) whose definition has pins of Nova that keep the vCPUs in their cells' nodes."""
