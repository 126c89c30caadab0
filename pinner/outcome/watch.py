"""A guard that looks at a placement again and again, and may stop it at any look.

Each bet names one of the values from before the change: "the next value is above it". If the change did nothing, the
values before and since can be exchanged with each other, so the probability of "above" follows from the counts so far
(Polya's urn), and no bet gains on average. The capital of a bet is a test martingale then: it reaches 1 / alpha with a
probability of alpha at most, however often it is looked at (Ville 1939). Values that depend on the ones just before
them can be exchanged only if a window is long against that dependence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pinner.model.outcome import MEASURES, Measure, Sample

QUANTILES = (0.0, 0.1, 0.25, 0.5)
"""The bets: the share of the values from before the change that is above the value of the bet. 0: the highest one."""

CONFIDENCE = 0.9
"""The probability of "above" on which a bet counts. A bet loses nine tenths when it is wrong."""


@dataclass(frozen=True, slots=True)
class _Bet:
    mark: float
    """The value that the next one must be above."""
    above: int
    """The gaps between values from before that are above the mark, and the values since that were."""
    capital: float = 1.0

    def after(self, value: float, total: int) -> "_Bet":
        """``total``: all gaps, and all values since. A value that equals the mark counts against the bet."""
        chance = self.above / total
        confidence = max(CONFIDENCE, chance)
        if value > self.mark:
            return _Bet(self.mark, self.above + 1, self.capital * confidence / chance)
        left = (1 - confidence) / (1 - chance) if chance < 1 else 1.0
        return _Bet(self.mark, self.above, self.capital * left)


@dataclass(frozen=True, slots=True)
class Guard:
    """The bets against one measure."""

    bets: tuple[_Bet, ...]
    """A bet for each of QUANTILES."""
    total: int
    """The gaps between the values from before, and the values since."""

    @property
    def capital(self) -> float:
        """The mean capital of the bets: 1 at the start."""
        return sum(bet.capital for bet in self.bets) / len(self.bets)

    def after(self, value: float) -> "Guard":
        """The guard after one more value."""
        return Guard(tuple(bet.after(value, self.total) for bet in self.bets), self.total + 1)


def guard(before: Sequence[float]) -> Guard:
    """The guard of a change, from the values of the measure before it. At least one is needed."""
    values = sorted(before, reverse=True)
    ranks = [min(int(share * len(values)), len(values) - 1) for share in QUANTILES]
    return Guard(tuple(_Bet(values[rank], rank + 1) for rank in ranks), len(values) + 1)


def is_worse(guards: Sequence[Guard], alpha: float = 0.05) -> bool:
    """Whether the measures together have become worse. The mean of their capitals is a martingale, too."""
    return sum(guard.capital for guard in guards) >= len(guards) / alpha


def worse(before: Sequence[Sample], after: Sequence[Sample], alpha: float = 0.05) -> tuple[Measure, ...]:
    """The measures that became worse by more than their margin; none as long as nothing is certain.

    It looks after each sample, as a guard may. A measure that is not known before is not watched.
    """
    guards = {}
    for measure in MEASURES:
        if values := [each.values[measure.name] + measure.margin for each in before if measure.name in each.values]:
            guards[measure] = guard(values)
    for sample in after:
        guards = {
            measure: each.after(sample.values[measure.name]) if measure.name in sample.values else each
            for measure, each in guards.items()
        }
        if guards and is_worse(tuple(guards.values()), alpha):
            most = max(each.capital for each in guards.values())
            return tuple(measure for measure, each in guards.items() if each.capital >= min(most, 1 / alpha))
    return ()
