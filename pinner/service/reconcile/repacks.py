"""Proposes re-packs: plans that move guests which have spread over nodes, caches and cores."""

from collections.abc import Callable
from datetime import datetime

from pinner import codec
from pinner.model.plan.plan import Placement
from pinner.model.plan.request import Request
from pinner.model.policy import Repack
from pinner.model.run.audit import Caller
from pinner.model.snapshot import Snapshot
from pinner.planning import planner
from pinner.planning.policy.repack import RepackRule, RepackWatch, pressure, refusal
from pinner.service.hosts.plan_maker import PlanMaker
from pinner.service.policy.observation import Observation


class RepackProposer:
    """Stores a plan where a re-pack pays. A person applies it; a policy never does.

    What it remembers of a host is lost at a restart: then the host is watched anew.
    """

    def __init__(self, plans: PlanMaker, rule: RepackRule, now: Callable[[], datetime]) -> None:
        self._plans = plans
        self._rule = rule
        self._now = now
        self._watches: dict[str, RepackWatch] = {}
        self._proposals: dict[str, Repack] = {}

    def observe(self, host: str, seen: Observation, caller: Caller) -> None:
        """A host that drifts, or whose policy only observes, has no proposal."""
        policy, placement, plan = seen.policy, seen.placement, seen.plan
        if policy is None or placement is None or plan is None or plan.changes or policy.mode == "observe":
            self._proposals.pop(host, None)
            return
        now, rule, spread = self._now(), self._rule, pressure(plan.objective)
        watch = self._watches.get(host, RepackWatch()).observed(rule, spread, now)
        if watch.above_since is None:
            self._proposals.pop(host, None)
        if watch.is_due(rule, now):
            watch = watch.paused(rule, now)
            self._proposals[host] = self._dry_run(seen.snapshot, policy.request, placement, spread, caller)
        self._watches[host] = watch

    def _dry_run(
        self, snapshot: Snapshot, request: Request, placement: Placement, spread: float, caller: Caller
    ) -> Repack:
        plan = planner.repack(snapshot, codec.content_hash(snapshot), request, placement)
        if why := refusal(self._rule, plan):
            return Repack("", spread, why)
        self._plans.keep(snapshot, plan, caller)
        return Repack(plan.id, spread)

    def proposal(self, host: str) -> Repack | None:
        """Of the host's last dry run, while it is true."""
        return self._proposals.get(host)
