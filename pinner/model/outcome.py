"""The outcome of a plan: what was measured in windows of time, and the verdict of a test."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Arm = Literal["current", "planned"]
"""The placement during a window: as the probe found it, or as the plan wants it."""

Judgement = Literal["better", "worse", "no matter", "inconclusive"]
"""better, worse: the difference is not explained by chance. no matter: the interval lies inside the margin.
inconclusive: the windows do not allow an answer."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One thing that is measured in each window. A higher value is always worse."""

    name: str
    """Its name, as in ``run_delay``."""
    unit: str
    """The unit of a window's value, as in ``ms/s``."""
    margin: float
    """A difference of the means below this matters to nobody, in the unit."""


@dataclass(frozen=True, slots=True)
class Window:
    """A span of time with one placement, and one number for each measure."""

    arm: Arm
    """The placement during the window."""
    values: Mapping[str, float]
    """The value of each measure, by name: of the guests whose placement the plan changes."""
    control: Mapping[str, float] = field(default_factory=dict)
    """The value of each measure, by name: of the guests that the plan does not touch. Empty: there are none."""
    void: str = ""
    """Why the window does not count, as "guest web-1 migrated"; empty if it counts."""


@dataclass(frozen=True, slots=True)
class MeasureOutcome:
    """The result of the test for one measure."""

    measure: Measure
    """The measure."""
    current: float
    """The mean of the windows with the current placement, in the unit."""
    planned: float
    """The mean of the windows with the planned placement, in the unit."""
    effect: float
    """The estimated difference, planned minus current, in the unit (Hodges and Lehmann). Below 0 is better."""
    low: float
    """The lower end of the effect's 95 % interval; minus infinity: the windows do not bound it."""
    high: float
    """The upper end of the effect's 95 % interval; infinity: the windows do not bound it."""
    p: float
    """The p-value of the two-sided test, after Holm's correction for the number of measures."""
    judgement: Judgement
    """What the test says of this measure."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The verdict of a test over all measures."""

    judgement: Judgement
    """worse if one measure is worse; else better if one is better; no matter if no measure matters."""
    measures: tuple[MeasureOutcome, ...]
    """The result of each measure."""
    windows: int
    """The number of windows that count."""
    void: tuple[str, ...]
    """Why other windows do not count."""
    missing: int
    """Estimated number of windows with each placement that are missing for an answer; 0 unless inconclusive."""
