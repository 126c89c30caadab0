"""The objective by which plans are compared (docs/objective.md): lower is better, 0 is best. A tier, from 1, counts
only between plans that are equal in all tiers before it; its weighted terms are added up."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from pinner.model.errors import Invalid


@dataclass(frozen=True, slots=True)
class TermKind:
    name: str
    tier: int
    unit: str
    weight: float
    counts: str


TERMS = (
    TermKind("unplaced_guests", 1, "guests", 1.0, "guests without a place"),
    TermKind("extra_nodes", 2, "nodes", 1.0, "NUMA nodes that guests span beyond their need"),
    TermKind("remote_memory", 3, "MiB x distance", 1.0, "guests' memory on other nodes than their vCPUs"),
    TermKind("shared_cores", 4, "cores", 1.0, "cores that the vCPUs of several guests may use"),
    TermKind("extra_l3", 5, "L3 domains", 1.0, "level-3 caches that guests span beyond their need"),
    TermKind("host_overload", 6, "CPUs", 1.0, "load of busy host processes beyond one CPU for each CPU"),
    TermKind("qemu_overload", 6, "CPUs", 1.0, "load of QEMU's own threads beyond one CPU for each CPU"),
    TermKind("vcpu_overload", 6, "CPUs", 1.0, "load of vCPUs beyond one CPU for each CPU"),
    TermKind("vcpu_vs_host", 6, "CPUs", 1.0, "busy host processes on the CPUs of vCPUs"),
    TermKind("vcpu_vs_emulator", 6, "CPUs", 1.0, "QEMU's own threads on the CPUs of vCPUs"),
    TermKind("emulator_vs_host", 6, "CPUs", 1.0, "busy host processes on the CPUs of QEMU's own threads"),
    TermKind("overcommit", 6, "CPUs", 1.0, "vCPUs beyond one for each CPU"),
    TermKind("remote_devices", 7, "devices", 1.0, "guests' PCI devices on other nodes than their vCPUs"),
    TermKind("paired_vcpus", 7, "vCPUs", 0.2, "vCPUs on cores of others of their guest, beyond its need"),
    TermKind("moved_threads", 8, "threads", 1.0, "threads whose CPUs change"),
    TermKind("moved_memory", 8, "MiB", 0.01, "memory that has to follow guests to another node"),
)
CONTENTION = 6
"""Tier of threads that disturb each other."""
COST = max(kind.tier for kind in TERMS)
"""Tier of the change itself: a host that stays as it is has none."""
MOST_WEIGHT = 1_000_000.0
"""With a larger weight, sums would lose the smaller terms of the tier."""
LEAST = 0.01
"""A smaller difference of a tier's values is none."""
_DIGITS = 6
"""So few that the order of additions makes no difference."""

Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Term:
    """A part of the objective: the value now and the planned one; 0 is best."""

    name: str
    tier: int
    """From 1: it counts only between plans that are equal in all tiers above it."""
    unit: str
    weight: float
    """Its factor in the tier."""
    before: float
    """Its value for the host as it is."""
    after: float
    """Its value after an apply."""
    asked: bool = True
    """Whether the request's strategy tries to lower it."""
    excused: float = field(default=0.0, metadata={"exclude_if": lambda excused: not excused})
    """The part of its rise that makes no plan worse. JSON leaves it out where it is 0."""

    @property
    def rise(self) -> float:
        return self.weight * (self.after - self.before)

    @property
    def harm(self) -> float:
        """Its rise without the excused part; negative where it falls."""
        return self.rise - self.weight * self.excused


@dataclass(frozen=True, slots=True)
class Objective:
    """The terms by which plans are compared."""

    terms: tuple[Term, ...] = ()
    """Its terms, in the order of their tiers."""

    def tiers(self) -> Iterator[tuple[Term, ...]]:
        for tier in dict.fromkeys(term.tier for term in self.terms):
            yield tuple(term for term in self.terms if term.tier == tier)

    def asking(self, names: frozenset[str]) -> "Objective":
        return Objective(tuple(replace(term, asked=term.asked or term.name in names) for term in self.terms))

    def decisive(self) -> tuple[Term, ...]:
        """Terms that the strategy asks for, of the first tier in which they change, without the cost of the change."""
        wanted = (tuple(term for term in tier if term.asked and term.tier < COST) for tier in self.tiers())
        return next((tier for tier in wanted if abs(rise(tier)) >= LEAST), ())

    @property
    def gain(self) -> float:
        """Negative where the decisive tier rises, 0 where no tier changes."""
        tier = self.decisive()
        return -rise(tier) if tier else 0

    def term(self, name: str) -> Term:
        """Raises KeyError."""
        terms = {term.name: term for term in self.terms}
        return terms[name]


@dataclass(frozen=True, slots=True)
class Optimality:
    """How good the CPUs of vCPUs are, compared with the best allocation."""

    score: Mapping[str, int]
    """Terms by name, in the order in which they count; lower is better."""
    bound: Mapping[str, int]
    """Terms of a score that no allocation can be below."""
    gap: float
    """(number - bound) / number of the first term that is not at its bound; 0: the score is proven."""
    proven: bool
    """Whether no allocation has a lower score."""
    note: str = ""
    """Why the score is not proven, and what to do about it; empty where it is, or where nobody tried."""
    beyond: tuple[str, ...] = field(default=(), metadata={"exclude_if": lambda names: not names})
    """Names of guests that are bound to CPUs or wider than a node: score and proof leave them out."""


def rise(terms: tuple[Term, ...]) -> float:
    """Of the weighted sum of one tier."""
    return round(math.fsum(term.rise for term in terms), _DIGITS)


def harm(terms: tuple[Term, ...]) -> float:
    """The same, without what is excused."""
    return round(math.fsum(term.harm for term in terms), _DIGITS)


def value_of(terms: tuple[Term, ...]) -> tuple[float, float]:
    before, after = (math.fsum(term.weight * getattr(term, side) for term in terms) for side in ("before", "after"))
    return round(before, _DIGITS), round(after, _DIGITS)


def compared(
    before: Values,
    after: Values,
    weights: Values,
    asked: frozenset[str] | None = None,
    excused: Values = MappingProxyType({}),
) -> Objective:
    """A missing value is 0. ``weights`` has every term; the strategy tries to lower those ``asked`` (None: all)."""
    return Objective(tuple(_term(kind, before, after, weights, asked, excused) for kind in TERMS))


def _term(
    kind: TermKind, before: Values, after: Values, weights: Values, asked: frozenset[str] | None, excused: Values
) -> Term:
    now, then = (round(values.get(kind.name, 0.0), _DIGITS) for values in (before, after))
    return Term(
        kind.name,
        kind.tier,
        kind.unit,
        weights[kind.name],
        now,
        then,
        asked is None or kind.name in asked,
        round(max(min(excused.get(kind.name, 0.0), then - now), 0.0), _DIGITS),
    )


def weighted(*given: Values) -> dict[str, float]:
    weights = {kind.name: kind.weight for kind in TERMS}
    for each in given:
        weights.update(each)
    return weights


def checked_weights(weights: Values) -> dict[str, float]:
    """Sorted by name. Raises Invalid for the first wrong one."""
    names = [kind.name for kind in TERMS]
    for name, weight in sorted(weights.items()):
        if name not in names:
            raise Invalid("weights", name, f"the name of a term: {', '.join(names)}")
        number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not (number and math.isfinite(weight) and 0 <= weight <= MOST_WEIGHT):
            raise Invalid(f"weights.{name}", weight, f"a number from 0 to {MOST_WEIGHT:.0f}")
    return {name: float(weights[name]) for name in sorted(weights)}
