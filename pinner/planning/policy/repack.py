"""When a full re-pack of a host is proposed: a rule with hysteresis (docs/strategies.md)."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import fsum

from pinner.model.plan.objective import Objective, value_of
from pinner.model.plan.plan import Plan
from pinner.planning.changes import exchanging

_PRESSURE = ("extra_nodes", "shared_cores", "extra_l3")
_MIB_OF_GIB = 1024


@dataclass(frozen=True, slots=True)
class RepackRule:
    mark: float = 8.0
    after: timedelta = timedelta(minutes=15)
    """How long the pressure stays at the mark or above."""
    gain: float = 0.25
    """As a share of the decisive tier."""
    pause: timedelta = timedelta(days=1)


DEFAULT_RULE = RepackRule()


@dataclass(frozen=True, slots=True)
class RepackWatch:
    above_since: datetime | None = None
    paused_until: datetime | None = None

    def observed(self, rule: RepackRule, pressure: float, now: datetime) -> "RepackWatch":
        return replace(self, above_since=(self.above_since or now) if pressure >= rule.mark else None)

    def is_due(self, rule: RepackRule, now: datetime) -> bool:
        waited = self.above_since is not None and now - self.above_since >= rule.after
        return waited and (self.paused_until is None or now >= self.paused_until)

    def paused(self, rule: RepackRule, now: datetime) -> "RepackWatch":
        return replace(self, paused_until=now + rule.pause)


def pressure(objective: Objective) -> float:
    """By the terms' weights; remote_memory in GiB x distance."""
    terms = [term for term in objective.terms if term.asked]
    memory = fsum(term.weight * term.after for term in terms if term.name == "remote_memory")
    return fsum(term.weight * term.after for term in terms if term.name in _PRESSURE) + memory / _MIB_OF_GIB


def refusal(rule: RepackRule, plan: Plan) -> str:
    if plan.blocked:
        return plan.blocked
    if guests := exchanging(plan.changes):
        names = ", ".join(sorted(target.name for target in guests))
        return f"guests {names} exchange CPUs: there is no order in which each leaves its CPUs before another gets them"
    before, after = value_of(plan.objective.decisive())
    if before <= after:
        return "no move of a guest gains"
    if before - after < rule.gain * before:
        return f"it gains {before - after:g} of {before:g}, less than {rule.gain:.0%}"
    return ""
