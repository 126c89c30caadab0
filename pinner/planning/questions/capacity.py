"""How many more vCPUs each strategy can place on a host, and how many more guests of one shape, without a move and
without overcommit. Beside guests that float, which may gather on other nodes, ``exclusive`` may have more. For vCPUs
memory does not count; for guests of a shape, plans are made."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from math import fsum

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid, NoFit, NovaConflict
from pinner.model.machine.topology import NodeId
from pinner.model.plan.plan import Placement, Plan
from pinner.model.plan.request import MANUAL, Request
from pinner.model.policy import Mode
from pinner.model.questions import Capacity, GuestShape, NewGuests, NodeCapacity, ShapeRoom, StrategyCapacity
from pinner.model.snapshot import Snapshot
from pinner.planning import planner
from pinner.planning.available.exclusions import exclusive_cpus
from pinner.planning.available.numa import MemoryBalance, everything, outstanding
from pinner.planning.placement import record
from pinner.planning.questions.whatif import is_hypothetical, with_guests
from pinner.planning.request import siblings
from pinner.planning.request.context import Context, vcpu_masks
from pinner.planning.strategies.allocator.free_cpus import free_slots
from pinner.planning.strategies.exclusive import Exclusive
from pinner.planning.strategies.isolated import Isolated
from pinner.planning.strategies.numa_local import NumaLocal
from pinner.planning.strategies.per_flavor import LIVE, is_live, refusals
from pinner.planning.strategies.shared_pool import SharedPool
from pinner.planning.strategies.strategy import Strategy, Unavailable, installed, require_known

_ROUNDING = 1e-6
"""Of the sum of many shares of a vCPU."""
_NAMED = "the policy names its guests: pinner does not place a new one"
_PARTITIONS = "live partitions are made for guests that run: the room for another one is not known before its start"
_PLUG_IN = "this strategy is a plug-in, which does not tell its room"


@dataclass(frozen=True, slots=True)
class _Placed:
    context: Context
    plan: Plan
    masks: Mapping[CpuSet, int]


def capacity(
    snapshot: Snapshot,
    request: Request,
    placement: Placement | None = None,
    mode: Mode | None = None,
    strategies: Mapping[str, Strategy] | None = None,
) -> Capacity:
    """From the recorded placement of ``request``, without the numbers by guest size. ``strategies``: those that flavors
    may ask for (None: the installed ones). Raises NotFound for an unknown strategy of the request."""
    known = installed() if strategies is None else strategies
    require_known(request.strategy, known)
    return Capacity(snapshot.host, snapshot.taken_at, mode, request.strategy, _all(snapshot, request, placement, known))


def _all(
    snapshot: Snapshot, request: Request, placement: Placement | None, known: Mapping[str, Strategy]
) -> tuple[StrategyCapacity, ...]:
    try:
        context = Context.of(snapshot, request, placement, lenient=True)
        context, plan = planner.settled(known, context, planner.make)
    except (Invalid, NoFit, NovaConflict) as error:
        return tuple(_none(known[name], str(error)) for name in _names(known, request))
    placed = _Placed(context, plan, Counter(vcpu_masks(snapshot, plan.wanted).values()))
    why = plan.blocked or (_NAMED if request.guests or request.strategy == MANUAL else "")
    live = LIVE if is_live(known[request.strategy], plan.wanted, context) else ""
    whys = {name: why or (live if name != request.strategy else "") for name in _names(known, request)}
    return tuple(_none(known[name], why) if why else _of(known[name], placed) for name, why in whys.items())


def _names(known: Collection[str], request: Request) -> list[str]:
    """The request's strategy, and those for which a flavor may ask."""
    return sorted({*known} - {MANUAL} | {request.strategy})


def _none(strategy: Strategy, why: str) -> StrategyCapacity:
    return StrategyCapacity(strategy.name, not isinstance(strategy, SharedPool), 0, why=why)


def _of(strategy: Strategy, placed: _Placed) -> StrategyCapacity:
    own = strategy.name == placed.context.request.strategy
    context = placed.context if own else replace(placed.context, joined=placed.plan.roles)
    try:
        match strategy:
            case SharedPool() | NumaLocal():
                return _floating(strategy, context, placed)
            case Isolated():
                return _isolated(strategy, context, placed)
            case Exclusive():
                return _exclusive(strategy, context, placed)
            case Unavailable():
                return _none(strategy, strategy.summary)
    except NoFit as error:
        return _none(strategy, str(error.details.get("why", error.message)))
    return _none(strategy, _PLUG_IN)


def _floating(strategy: SharedPool | NumaLocal, context: Context, placed: _Placed) -> StrategyCapacity:
    own = exclusive_cpus(context.guests, context.request, placed.plan.wanted)
    pool = siblings.usable(context, (context.resolve().roles.vcpu & context.allocatable.shared) - own)
    pools = {node: pool & cpus for node, cpus in context.allocatable.nodes.items()}
    free = {node: _whole(len(cpus) - _shares(placed, cpus)) for node, cpus in pools.items()}
    within = isinstance(strategy, NumaLocal)
    total = sum(free.values()) if within else _whole(len(pool) - _shares(placed, pool))
    return StrategyCapacity(strategy.name, within, total, _nodes(context, pools, free))


def _isolated(strategy: Isolated, context: Context, placed: _Placed) -> StrategyCapacity:
    pool = context.allocatable.unbalanced
    if not pool:
        live = context.request.isolation == "live" and context.joined is None
        return _none(strategy, _PARTITIONS if live else "no isolated CPU is free")
    return _one_to_one(strategy, context, placed, pool, len)


def _exclusive(strategy: Exclusive, context: Context, placed: _Placed) -> StrategyCapacity:
    """Guests of the plan that float keep a CPU for each vCPU, on each node."""
    roles = context.resolve(apart=True).roles
    pool = roles.vcpu - roles.housekeeping - roles.emulator
    vcpus = (want.cpus for want in placed.plan.wanted if want.target.kind == "vcpu")
    floating = replace(placed, masks=Counter(mask for mask in vcpus if len(mask) > 1))
    return _one_to_one(strategy, context, placed, pool, lambda cpus: _whole(len(cpus) - _shares(floating, cpus)))


def _one_to_one(
    strategy: Strategy, context: Context, placed: _Placed, pool: CpuSet, most: Callable[[CpuSet], int]
) -> StrategyCapacity:
    """``most``: vCPUs for a node's CPUs of the pool."""
    pools = {node: pool & cpus for node, cpus in context.allocatable.nodes.items()}
    slots = free_slots(context, pool, union(mask for mask in placed.masks if len(mask) == 1))
    free = {node: min(slots[node], most(cpus)) for node, cpus in pools.items()}
    widest = max(free_slots(context, pool, CpuSet()).values(), default=0)
    return StrategyCapacity(strategy.name, True, sum(free.values()), _nodes(context, pools, free), widest=widest)


def _nodes(context: Context, pools: Mapping[NodeId, CpuSet], free: Mapping[NodeId, int]) -> tuple[NodeCapacity, ...]:
    memory = context.snapshot.topology.local_memory
    return tuple(NodeCapacity(node, cpus, free[node], memory.get(node)) for node, cpus in pools.items())


def _shares(placed: _Placed, cpus: CpuSet) -> float:
    online = placed.context.allocatable.online
    total = 0.0
    for mask, count in placed.masks.items():
        usable = mask & online
        total += count * len(usable & cpus) / max(len(usable), 1)
    return total


def _whole(free: float) -> int:
    return max(0, int(free + _ROUNDING))


_REQUEST_NAMES = "the request names its guests: pinner does not place a new one"


def shape_rooms(
    snapshot: Snapshot, request: Request, shape: GuestShape, placement: Placement | None = None
) -> tuple[ShapeRoom, ...]:
    """From the recorded placement of ``request``. None of the new guests' memory is resident. Raises NotFound for an
    unknown strategy."""
    require_known(request.strategy, known := installed())
    try:
        before = _Planned.of(snapshot, request, placement, known)
    except (Invalid, NoFit, NovaConflict) as error:
        return tuple(ShapeRoom(name, 0, str(error)) for name in _names(known, request))
    why = before.plan.blocked or (_REQUEST_NAMES if request.guests or request.strategy == MANUAL else "")
    names = _names(known, request)
    return tuple(ShapeRoom(name, 0, why) if why else _room(before, snapshot, shape, name) for name in names)


@dataclass(frozen=True, slots=True)
class _Planned:
    context: Context
    plan: Plan
    placement: Placement
    strategies: Mapping[str, Strategy]

    @classmethod
    def of(
        cls, snapshot: Snapshot, request: Request, placement: Placement | None, strategies: Mapping[str, Strategy]
    ) -> "_Planned":
        """Without a placement, it is the one that the plan makes."""
        context = Context.of(snapshot, request, placement, lenient=True)
        context, plan = planner.settled(strategies, context, planner.make)
        return cls(context, plan, placement or record(plan, snapshot, None), strategies)

    def masks(self) -> dict[Target, CpuSet]:
        return vcpu_masks(self.context.snapshot, self.plan.wanted)


def _room(before: _Planned, snapshot: Snapshot, shape: GuestShape, strategy: str) -> ShapeRoom:
    def obstacle(count: int) -> str:
        return _obstacle(before, snapshot, NewGuests(shape, count, strategy)) if count else ""

    count = _largest(lambda number: not obstacle(number), len(snapshot.topology.online) // shape.vcpus + 1)
    return ShapeRoom(strategy, count, obstacle(count + 1))


def _largest(fits: Callable[[int], bool], most: int) -> int:
    """The next one does not fit; 0 fits, and ``most`` does not."""
    low, high = 0, 1
    while high < most and fits(high):
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _obstacle(before: _Planned, snapshot: Snapshot, new: NewGuests) -> str:
    other = with_guests(snapshot, (new,))
    ours = {guest.uuid for guest in other.guests if is_hypothetical(guest)}
    try:
        after = _Planned.of(other, before.plan.request, before.placement, before.strategies)
        refused = _refused(after, new, ours)
    except (Invalid, NoFit, NovaConflict) as error:
        return str(error)
    unplaced = next((left.why for left in after.plan.unplaced if left.target.owner in ours), "")
    return refused or unplaced or _moved(before, after) or _crowded(before, after) or _without_memory(other, new)


def _refused(after: _Planned, new: NewGuests, ours: Collection[str]) -> str:
    if new.strategy == after.plan.request.strategy:
        return ""
    return next((why for uuid, why in refusals(after.context, after.strategies).items() if uuid in ours), "")


def _moved(before: _Planned, after: _Planned) -> str:
    """Whose vCPUs get other CPUs; those that float may keep fewer of theirs."""
    masks = after.masks()
    moved = next((target for target, cpus in before.masks().items() if not masks[target] <= cpus), None)
    return f"guest {moved.name} would move" if moved else ""


def _crowded(before: _Planned, after: _Planned) -> str:
    more = _without_own_cpu(after) - _without_own_cpu(before)
    return f"{more:.2f} vCPUs more would share CPUs with others" if more > _ROUNDING else ""


def _without_own_cpu(planned: _Planned) -> float:
    online = planned.context.allocatable.online
    density: defaultdict[int, float] = defaultdict(float)
    for mask, vcpus in Counter(planned.masks().values()).items():
        cpus = mask & online
        for cpu in cpus:
            density[cpu] += vcpus / len(cpus)
    return fsum(max(each - 1.0, 0.0) for each in density.values())


def _without_memory(host: Snapshot, new: NewGuests) -> str:
    if not new.shape.memory_kib:
        return ""
    balance = MemoryBalance.of(host.topology, host.guests)
    page = new.shape.page_kib
    needed = sum(outstanding(guest, everything(guest)) for guest in host.guests if guest.numa.page_kib == page)
    available = max(sum(free for (_, size), free in balance.free.items() if size == page), 0)
    if not balance.nearest or needed <= available:
        return ""
    what = f"huge pages of {page} KiB" if page else "memory"
    return f"the host has {available} KiB of {what} left, and its guests would need {needed} KiB"
