"""The interface of a strategy, the installed ones (entry points of the group ``pinner.strategies``), and the common
parts of their answers."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import ClassVar, Protocol, cast

from pinner.model.cpuset import CpuSet, union
from pinner.model.errors import Invalid, NotFound
from pinner.model.guest.guest import Guest
from pinner.model.machine.topology import NodeId
from pinner.model.plan.objective import TERMS, Optimality
from pinner.model.plan.plan import Isolation, LeftOut, Roles, Wanted
from pinner.planning.available.exclusions import pinned_cpus
from pinner.planning.available.numa import VcpuGroup
from pinner.planning.available.roles import Resolved
from pinner.planning.objective_terms import SPREAD
from pinner.planning.request import core_classes, siblings
from pinner.planning.request.context import Context
from pinner.planning.strategies.allocator import node_choice

GROUP = "pinner.strategies"
OWN = {
    "exclusive": "pinner.planning.strategies.exclusive:Exclusive",
    "isolated": "pinner.planning.strategies.isolated:Isolated",
    "manual": "pinner.planning.strategies.manual:Manual",
    "numa-local": "pinner.planning.strategies.numa_local:NumaLocal",
    "optimal": "pinner.planning.strategies.optimal:Optimal",
    "shared-pool": "pinner.planning.strategies.shared_pool:SharedPool",
}
"""pinner's own, known without a search for entry points."""
COMMON = ("housekeeping", "emulator", "busy_threshold", "guests", "processes")
"""Fields of a request that all of them read."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A strategy's placement, whatever the host's present affinities. Each guest of the context is in ``wanted`` with
    all its parts, or once in ``unplaced``. Of a placement by hand, both have parts and processes."""

    roles: Roles
    wanted: tuple[Wanted, ...]
    unplaced: tuple[LeftOut, ...] = ()
    warnings: tuple[str, ...] = ()
    isolation: Isolation | None = None
    blocked: str = ""
    optimality: Optimality | None = None
    """None where vCPUs float."""


class Strategy(Protocol):
    name: ClassVar[str]
    summary: ClassVar[str]
    parameters: ClassVar[tuple[str, ...]]
    """Fields of a request that it reads."""
    pursues: ClassVar[tuple[str, ...]]
    """Terms that it tries to lower, besides those of every strategy. A plug-in may lack this."""

    def place(self, context: Context) -> Answer:
        """The wanted placement; pure. Raises Invalid for a parameter that this host cannot have, NoFit."""


def asked_terms(strategy: Strategy) -> frozenset[str]:
    every = frozenset(kind.name for kind in TERMS) - SPREAD
    return every | frozenset(getattr(strategy, "pursues", ()))


class Unavailable:
    """A plug-in that does not load: lists name it, nothing is placed with it."""

    parameters: ClassVar[tuple[str, ...]] = ()
    pursues: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        self.summary = f"not available, because {why}"

    def place(self, _context: Context) -> Answer:
        raise self.refusal()

    def refusal(self) -> Invalid:
        return Invalid("strategy", self.name, f"a strategy that is available; this one is {self.summary}")


class _Installed(Mapping[str, Strategy]):
    """Each is imported at its first use. The search for plug-ins takes as long as a plan, so only a name that is none
    of pinner's own, or a look at all names, causes it."""

    def __getitem__(self, name: str) -> Strategy:
        return _own(name) if name in OWN else _plug_ins()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(sorted((*OWN, *_plug_ins())))

    def __len__(self) -> int:
        return len(OWN) + len(_plug_ins())


_INSTALLED = _Installed()


def installed() -> Mapping[str, Strategy]:
    return _INSTALLED


def require_known(name: str, strategies: Mapping[str, Strategy]) -> None:
    """Raises NotFound, and Invalid for a plug-in that does not load."""
    if name not in strategies:
        raise NotFound("strategy", name, tuple(sorted(strategies)))
    if isinstance(strategy := strategies[name], Unavailable):
        raise strategy.refusal()


@cache
def _own(name: str) -> Strategy:
    module, kind = OWN[name].split(":")
    strategy: Strategy = getattr(import_module(module), kind)()
    return strategy


@cache
def _plug_ins() -> dict[str, Strategy]:
    """None replaces one of pinner's own."""
    from importlib.metadata import entry_points  # imports the parsers of mail and of zip files

    plug_ins: dict[str, Strategy] = {}
    broken: dict[str, Strategy] = {}
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        if point.name in OWN:
            continue
        try:
            strategy: Strategy = point.load()()
            # What lists read: a strategy without it would fail there.
            described = strategy.name, strategy.summary, *strategy.parameters
            if not all(isinstance(each, str) for each in described):
                raise TypeError("its name, its summary and its parameters must be texts")
        except Exception as error:  # the other strategies do not depend on it
            why = f"plug-in {point.name} ({point.value}) does not load: {error!r}"
            # Its name differs from object to object, while a strategy's name is its class's.
            broken[point.name] = cast("Strategy", Unavailable(point.name, why))
        else:
            plug_ins[strategy.name] = strategy
    return {name: each for name, each in (broken | plug_ins).items() if name not in OWN}


_BESIDE = {
    "emulator": "QEMU's own threads run",
    "vhost": "a kernel thread of the guest's devices runs beside its emulator",
    "iothread": "QEMU's I/O work runs beside the emulator,",
}
"""An iothread polls and can use a whole CPU: on a vCPU's CPU it would stall the guest."""


def place_host_processes(context: Context, roles: Roles) -> Iterator[Wanted]:
    for move in context.moving:
        yield Wanted(move.target, roles.housekeeping, move.reason)


def place_emulator(guest: Guest, cpus: CpuSet, roles: Roles, reason: str = "") -> Iterator[Wanted]:
    shared = cpus & roles.vcpu
    where = f"on CPUs {shared}, which vCPUs use too" if shared else "off the vCPUs' CPUs"
    for target in guest.threads_by_target:
        if target.kind == "vcpu":
            break
        usual = _BESIDE[target.kind]
        yield Wanted(target, cpus, reason or (usual if target.kind == "vhost" else f"{usual} {where}"))


def place_beside(context: Context, resolved: Resolved, guest: Guest, nodes: Iterable[NodeId] = ()) -> Iterator[Wanted]:
    """``nodes`` are those of its vCPUs. Where its definition leaves the guest no CPU of the emulator set, QEMU's own
    threads share those of the vCPUs."""
    if cpus := beside(context, resolved, guest, nodes):
        return place_emulator(guest, cpus, context.with_hosts_vcpus(resolved.roles))
    why = f"{context.bounds[guest.uuid].why}, and so no CPU of the emulator set: QEMU's own threads share the vCPUs'"
    return place_emulator(guest, context.near(guest, resolved.roles.vcpu), resolved.roles, why)


def float_over(context: Context, guest: Guest, group: VcpuGroup, cpus: CpuSet, reason: str) -> Iterator[Wanted]:
    masks = _in_clusters(context.snapshot.topology.clusters, group.within(cpus), len(group.vcpus))
    why = group.why or reason
    if group.crowded:
        why += f", which {len(group.vcpus)} vCPUs share"
    for vcpu, mask in zip(group.vcpus, masks, strict=True):
        yield Wanted(guest.vcpu_targets[vcpu], mask, why)


def _in_clusters(clusters: tuple[CpuSet, ...], cpus: CpuSet, count: int) -> list[CpuSet]:
    """One of several clusters for each vCPU, in proportion to their CPUs."""
    parts = [cluster & cpus for cluster in clusters for _ in cluster & cpus] or [cpus]
    return [parts[number * len(parts) // count] for number in range(count)]


def divided(context: Context, roles: Roles, *, apart: bool = False) -> tuple[Context, tuple[LeftOut, ...]]:
    """The guests whose nodes have CPUs of each set, and the others: only bound guests can be left out. With ``apart``
    none shares its vCPUs' CPUs with QEMU's own threads. Guests that are left out stay on their isolated CPUs."""
    left_out = tuple(
        LeftOut(guest.target, why)
        for guest in context.guests
        if (guest.uuid in context.bounds or guest.uuid in context.cores)
        and (why := _lacking(context, guest, roles, apart=apart))
    )
    out = {each.target.owner for each in left_out}
    taken = context.taken | union(pinned_cpus(guest) for guest in context.guests if guest.uuid in out)
    guests = tuple(guest for guest in context.guests if guest.uuid not in out)
    return replace(context, guests=guests, taken=taken), left_out


def divided_to_float(
    context: Context, roles: Roles, pools: Mapping[NodeId, CpuSet], *, crowd: bool
) -> tuple[Context, tuple[LeftOut, ...]]:
    """The guests with the threads and the kind of cores over which each floats, and the others. ``pools``: the vCPU
    set by node, or together; ``crowd``: see core_classes.kept_apart."""
    context, few = siblings.kept(context, roles.vcpu)
    context, left_out = divided(context, roles)

    def room(cpus: CpuSet) -> dict[NodeId, int]:
        return {node: len(siblings.usable(context, pool & cpus)) for node, pool in pools.items()}

    return core_classes.kept_apart(context, roles.vcpu, room, crowd=crowd), (*few, *left_out)


def beside(context: Context, resolved: Resolved, guest: Guest, nodes: Iterable[NodeId]) -> CpuSet:
    """The emulator set of these nodes; of all nodes where these have none."""
    near = union([resolved.emulator_on[node] for node in nodes if node in resolved.emulator_on])
    return context.near(guest, near) or context.near(guest, resolved.roles.emulator)


def why_here(context: Context, guest: Guest, nodes: Collection[NodeId]) -> str:
    bound = "; ".join([group.why for group in context.groups(guest) if group.why])
    part = "part of " if len(nodes) > 1 else ""
    return bound or "; ".join([node_choice.reason(context.snapshot, guest, node, part) for node in nodes])


def _lacking(context: Context, guest: Guest, roles: Roles, *, apart: bool) -> str:
    for group in context.groups(guest):
        if not group.within(roles.vcpu):
            why = group.why or f"the guest may only use CPUs {group.cpus}"
            return f"{why}, where the vCPU set ({roles.vcpu}) has no CPU"
    if not context.near(guest, roles.emulator) and (apart or not guest.restriction):
        whys = context.bounds[guest.uuid].why
        cure = "; to lift the restriction, name the guest in released_guests (--release-cpuset)"
        return f"{whys}, where the emulator set ({roles.emulator}) has no CPU{cure if guest.restriction else ''}"
    return ""


def pin(guest: Guest, cpus: Mapping[int, int], reason: str) -> Iterator[Wanted]:
    targets = guest.vcpu_targets
    for vcpu, cpu in cpus.items():
        yield Wanted(targets[vcpu], CpuSet.one(cpu), reason)


def floating_warnings(context: Context, roles: Roles) -> Iterator[str]:
    shared = roles.cpus & context.snapshot.topology.nohz_full
    if shared:
        yield f"CPUs {shared} are nohz_full, but several threads share each of them: their timer tick does not stop"
    yield from siblings.warnings(context, roles.vcpu)
