"""Stored plans as JSON, kept for some time: a plan never changes after it was stored."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from pinner import codec
from pinner.bounded_cache import BoundedCache
from pinner.model.plan.plan import Plan

KEPT = 64
"""Plans that are kept; one of a large host takes about 100 KB."""
KEPT_SECONDS = 60.0
"""A plan that was deleted from the database is shown for at most so long."""


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A plan as JSON, with its host."""

    host: str
    json: bytes
    until: float


class KeptPlans:
    """The plans that were shown last."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._plans: BoundedCache[str, KeptPlan] = BoundedCache(KEPT)

    def get(self, plan: str, load: Callable[[str], Plan]) -> KeptPlan:
        """The plan with this id, from ``load`` where it is not kept. Raises what ``load`` raises."""
        kept = self._plans.get(plan)
        now = self._clock()
        if kept is None or kept.until < now:
            loaded = load(plan)
            kept = KeptPlan(loaded.host, codec.dump(loaded) + b"\n", now + KEPT_SECONDS)
            self._plans.put(plan, kept)
        return kept
