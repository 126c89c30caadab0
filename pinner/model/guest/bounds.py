"""The limits of a plan that allocates CPUs."""

from dataclasses import dataclass, field

from pinner.model.guest.nova import NovaOwns


@dataclass(frozen=True, slots=True)
class Bounds:
    """At one moment."""

    nova: NovaOwns = field(default_factory=NovaOwns)
    excluded: frozenset[str] = frozenset()
    """UUIDs of active guests (Guest.excluded)."""
    cells: frozenset[str] = frozenset()
    """UUIDs of the active guests whose definition has pins of Nova that keep vCPUs in their cells' nodes."""
