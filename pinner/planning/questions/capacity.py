"""How many more vCPUs each strategy can place on a host: the planner places so many without a move and without
overcommit, and not one more. Memory does not count."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid, NoFit, NovaConflict
from pinner.model.kinds import PartitionState
from pinner.model.machine.topology import NodeId
from pinner.model.plan.placement import Placement
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.policy.policy import Mode
from pinner.model.questions.capacity import Capacity, NodeCapacity, StrategyCapacity
from pinner.model.snapshot import Snapshot
from pinner.planning import planner
from pinner.planning.request.context import Context, vcpu_masks
from pinner.planning.strategies.allocator.free_cpus import free_slots
from pinner.planning.strategies.isolated import Isolated
from pinner.planning.strategies.numa_local import NumaLocal
from pinner.planning.strategies.shared_pool import SharedPool
from pinner.planning.strategies.strategy import Strategy, Unavailable, installed, require_known

_ROUNDING = 1e-6
"""Of the sum of many shares of a vCPU."""
_NAMED = "the policy names its guests: pinner does not place a new one"
_PARTITIONS = "live partitions are made for guests that run: the room for another one is not known before its start"
_NO_OTHERS = "the host's strategy makes live partitions, which leave no CPU for another strategy"
_PLUG_IN = "this strategy is a plug-in, which does not tell its room"


@dataclass(frozen=True, slots=True)
class _Placed:
    """A host after the plan for the guests that run now."""

    context: Context
    plan: Plan
    masks: Mapping[CpuSet, int]
    """How many vCPUs have each affinity."""


def capacity(
    snapshot: Snapshot,
    request: Request,
    placement: Placement | None = None,
    mode: Mode | None = None,
    strategies: Mapping[str, Strategy] | None = None,
) -> Capacity:
    """The room of a host, from the recorded placement of ``request``, without the numbers by guest size
    (``with_sizes``). ``strategies`` are those that flavors may ask for (None: the installed ones). Where nothing can be
    placed, each strategy says why. Raises NotFound for an unknown strategy of the request."""
    known = installed() if strategies is None else strategies
    require_known(request.strategy, known)
    return Capacity(snapshot.host, snapshot.taken_at, mode, request.strategy, _all(snapshot, request, placement, known))


def _all(
    snapshot: Snapshot, request: Request, placement: Placement | None, known: Mapping[str, Strategy]
) -> tuple[StrategyCapacity, ...]:
    try:
        context = Context.of(snapshot, request, placement, lenient=True)
        plan = planner.build(known, context, "", "")
    except (Invalid, NoFit, NovaConflict) as error:
        return tuple(_none(known[name], str(error)) for name in sorted(known))
    placed = _Placed(context, plan, Counter(vcpu_masks(snapshot, plan.wanted).values()))
    why = plan.blocked or (_NAMED if request.guests else "")
    return tuple(_none(known[name], why) if why else _of(known[name], placed) for name in sorted(known))


def _none(strategy: Strategy, why: str) -> StrategyCapacity:
    return StrategyCapacity(strategy.name, not isinstance(strategy, SharedPool), 0, why=why)


def _of(strategy: Strategy, placed: _Placed) -> StrategyCapacity:
    own = strategy.name == placed.context.request.strategy
    if not own and any(isinstance(want.state, PartitionState) for want in placed.plan.wanted):
        return _none(strategy, _NO_OTHERS)
    context = placed.context if own else replace(placed.context, joined=placed.plan.roles)
    try:
        match strategy:
            case SharedPool() | NumaLocal():
                return _floating(strategy, context, placed)
            case Isolated():
                return _isolated(strategy, context, placed)
            case Unavailable():
                return _none(strategy, strategy.summary)
    except NoFit as error:
        return _none(strategy, str(error.details.get("why", error.message)))
    return _none(strategy, _PLUG_IN)


def _floating(strategy: SharedPool | NumaLocal, context: Context, placed: _Placed) -> StrategyCapacity:
    """Less the share of each vCPU that may run on these CPUs."""
    pool = context.resolve().roles.vcpu & context.allocatable.shared
    pools = {node: pool & cpus for node, cpus in context.allocatable.nodes.items()}
    free = {node: _whole(len(cpus) - _shares(placed, cpus)) for node, cpus in pools.items()}
    within = isinstance(strategy, NumaLocal)
    total = sum(free.values()) if within else _whole(len(pool) - _shares(placed, pool))
    return StrategyCapacity(strategy.name, within, total, _nodes(context, pools, free))


def _isolated(strategy: Isolated, context: Context, placed: _Placed) -> StrategyCapacity:
    pool = context.allocatable.exclusive
    if not pool:
        live = context.request.isolation == "live" and context.joined is None
        return _none(strategy, _PARTITIONS if live else "no isolated CPU is free")
    taken = union(mask for mask in placed.masks if len(mask) == 1)
    free = free_slots(context, pool, taken)
    pools = {node: pool & cpus for node, cpus in context.allocatable.nodes.items()}
    widest = max(free_slots(context, pool, CpuSet()).values(), default=0)
    return StrategyCapacity(strategy.name, True, sum(free.values()), _nodes(context, pools, free), widest=widest)


def _nodes(context: Context, pools: Mapping[NodeId, CpuSet], free: Mapping[NodeId, int]) -> tuple[NodeCapacity, ...]:
    memory = context.snapshot.topology.local_memory
    return tuple(NodeCapacity(node, cpus, free[node], memory.get(node)) for node, cpus in pools.items())


def _shares(placed: _Placed, cpus: CpuSet) -> float:
    """If each vCPU spreads evenly over its online CPUs."""
    online = placed.context.allocatable.online
    total = 0.0
    for mask, count in placed.masks.items():
        usable = mask & online
        total += count * len(usable & cpus) / max(len(usable), 1)
    return total


def _whole(free: float) -> int:
    return max(0, int(free + _ROUNDING))
