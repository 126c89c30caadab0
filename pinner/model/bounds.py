"""What a plan that hands CPUs out must keep clear of."""

from dataclasses import dataclass, field

from pinner.model.nova import NovaOwns


@dataclass(frozen=True, slots=True)
class Bounds:
    """As of one moment."""

    nova: NovaOwns = field(default_factory=NovaOwns)
    excluded: frozenset[str] = frozenset()
    """The active guests (by UUID) that are marked as ones whose CPUs are left alone (Guest.exempt)."""
