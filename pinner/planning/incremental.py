"""Planning for a policy: what stands stays, and only what drifted, came or must make way moves."""

from collections.abc import Collection
from dataclasses import replace

from pinner import codec
from pinner.model.plan import Plan
from pinner.model.policy import Standing
from pinner.model.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.context import Context
from pinner.planning.identity import plan_id
from pinner.planning.planner import made, require_known
from pinner.planning.residents import Key, key
from pinner.planning.strategy import installed


def plan(snapshot: Snapshot, snapshot_id: str, request: Request, standing: Standing | None) -> Plan:
    """What it takes to make the host as the request wants it, from what stands of the same request.

    The roles that stand are kept, and so is the place of every guest; daemons that were placed are placed again without
    being measured. A guest that has come gets its place by the strategy; where there is none, at most two others make
    way. Nothing stands (None): a plan like any other. Guests and processes that the request names need not be there.
    Raises NotFound for an unknown strategy; Invalid and NoFit like any plan.
    """
    context = Context.of(snapshot, request, standing, lenient=True)
    strategies = installed()
    require_known(request, strategies)
    return made(strategies, context, snapshot_id, _identity(snapshot_id, request, standing, ()))


def without(plan: Plan, held: Collection[Key], standing: Standing | None) -> Plan:
    """The plan without the changes of these targets, under another id; the same plan where it has none of them."""
    left = tuple(change for change in plan.changes if key(change.target) not in held)
    if len(left) == len(plan.changes):
        return plan
    name = _identity(plan.basis.snapshot, plan.request, standing, sorted(map(str, held)))
    return replace(plan, id=name, changes=left)


def _identity(snapshot_id: str, request: Request, standing: Standing | None, held: Collection[str]) -> str:
    stood = codec.dump(standing) if standing else b""
    return plan_id(snapshot_id.encode(), codec.dump(request), stood, *map(str.encode, held))
