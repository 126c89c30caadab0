"""Interrupts of devices: off the CPUs of guests, near their devices.

Each gets one housekeeping CPU of its device's node, or of the nearest node with some, or of those that the request
names for its device, spread evenly. One in a right place stays, so a second plan changes nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from pinner.model.change import StateChange, Target, TargetKey
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid
from pinner.model.machine.interrupts import DeviceIrq, DeviceIrqs, is_managed, is_passed_through
from pinner.model.machine.topology import Topology
from pinner.model.plan.plan import LeftOut, Plan, Roles, Wanted
from pinner.model.states import State, cpus_of
from pinner.model.text import listed
from pinner.planning.available.numa import distance
from pinner.planning.changes import staying
from pinner.planning.request.context import Context
from pinner.planning.settings.row import Additions, PlanRow

_NAMED = 8


def _additions(plan: Plan, context: Context) -> Additions:
    irqs = context.snapshot.irqs or DeviceIrqs()
    places = _Places.of(context, plan)
    if irqs.irqs and not places.housekeeping:
        why = f"no interrupt is moved: no housekeeping CPU ({plan.roles.housekeeping}) is free of guests"
        return Additions(warnings=(why,))
    return Additions(
        wanted=_placed(irqs, places, context),
        skipped=tuple(_left_out(irqs, places)),
        warnings=tuple(_warnings(irqs, places, context)),
    )


def _objection(change: StateChange, plan: Plan, context: Context) -> str:
    irq = context.irqs.get(change.target.key)
    if irq is None:
        return "the agent's inventory has no such interrupt"
    if reason := immovable_reason(irq):
        return reason
    after = cpus_of(change.after)
    if outside := after - (plan.roles.housekeeping & context.allocatable.online):
        return f"CPUs {outside} are no online housekeeping CPUs of the plan"
    if theirs := after & guest_cpus(context, plan):
        return f"CPUs {theirs} are for guests"
    return ""


def immovable_reason(irq: DeviceIrq) -> str:
    if is_passed_through(irq.name):
        return "its device is passed through to a guest"
    if is_managed(irq.name, irq.managed):
        return "the kernel alone places it; isolcpus=managed_irq keeps such interrupts off isolated CPUs"
    return ""


def guest_cpus(context: Context, plan: Plan) -> CpuSet:
    """With those of vCPUs that the plan does not move, whatever its roles say."""
    return role_cpus(context, plan.roles) | staying(context.snapshot, {change.target.key for change in plan.changes})


def role_cpus(context: Context, roles: Roles) -> CpuSet:
    return roles.vcpu | roles.emulator | context.allocatable.reserved | context.of_others


@dataclass(frozen=True, slots=True)
class _Places:
    topology: Topology
    nodes: Mapping[str, int | None]
    """By device."""
    guests: CpuSet
    housekeeping: CpuSet
    chosen: Mapping[str, CpuSet]
    """By device: the request names them."""

    @classmethod
    def of(cls, context: Context, plan: Plan) -> "_Places":
        """Raises Invalid."""
        guests = guest_cpus(context, plan)
        topology = context.snapshot.topology
        nodes = {device.name: device.node for device in topology.devices}
        housekeeping = (plan.roles.housekeeping & context.allocatable.online) - guests
        return cls(topology, nodes, guests, housekeeping, _chosen(context, housekeeping))

    def node(self, irq: DeviceIrq) -> int | None:
        """The nearest node to its device that has CPUs for interrupts. None: any CPU."""
        here = self.nodes.get(irq.device)
        if here is None:
            return None
        fitting = [node for node, cpus in self.topology.cpus_by_node.items() if cpus & self.housekeeping]
        return min(fitting, key=lambda node: (distance(self.topology.node_by_id, here, node), node), default=None)

    def for_irq(self, irq: DeviceIrq) -> CpuSet:
        return self.chosen.get(irq.device) or self._near(irq, self.housekeeping)

    def is_right(self, irq: DeviceIrq) -> bool:
        """The kernel ignores an affinity's offline CPUs."""
        cpus, right = irq.cpus & self.topology.online, self.topology.online - self.guests
        if irq.device in self.chosen:
            return bool(cpus) and cpus <= self.chosen[irq.device]
        here = self.nodes.get(irq.device)
        beside = CpuSet() if here is None else right & self.topology.cpus_by_node.get(here, CpuSet())
        return bool(cpus) and cpus <= self._near(irq, right) | beside

    def _near(self, irq: DeviceIrq, cpus: CpuSet) -> CpuSet:
        node = self.node(irq)
        return cpus if node is None else cpus & self.topology.cpus_by_node[node]

    def reason(self, irq: DeviceIrq) -> str:
        if irq.device in self.chosen:
            return f"the request gives the interrupts of this device CPUs {self.chosen[irq.device]}"
        node, here = self.node(irq), self.nodes.get(irq.device)
        to = "to a housekeeping CPU" if node is None else f"to a housekeeping CPU of node {node}"
        beside = "" if node == here else f", the nearest one to its device on node {here} that has some"
        if theirs := irq.cpus & self.guests:
            return f"off the CPUs of guests ({theirs}), {to}{beside}"
        return f"its CPUs are not on the node of its device: {to}{beside}"


def _chosen(context: Context, housekeeping: CpuSet) -> dict[str, CpuSet]:
    """By PCI address; the request may name a card by its interface. Raises Invalid."""
    irqs = context.snapshot.irqs or DeviceIrqs()
    known = {irq.device: irq.device for irq in irqs.irqs}
    for device in context.snapshot.topology.devices:
        if device.kind == "net" and device.description in known:
            known[device.name] = device.description
    chosen: dict[str, CpuSet] = {}
    for name, text in context.request.irq_cpus.items():
        if name not in known:
            raise Invalid("irq_cpus", f"{name}={text}", f"a device with interrupts: {listed(sorted(known), _NAMED)}")
        if not (cpus := CpuSet.parse(text, "irq_cpus")) <= housekeeping:
            expected = f"CPUs of {housekeeping}, the plan's housekeeping CPUs that no guest has"
            raise Invalid("irq_cpus", f"{name}={text}", expected)
        if (others := chosen.setdefault(known[name], cpus)) != cpus:
            raise Invalid("irq_cpus", f"{name}={text}", f"CPUs {others}: another name of this device has them")
    return chosen


def _placed(irqs: DeviceIrqs, places: _Places, context: Context) -> tuple[Wanted, ...]:
    ours = (irq for irq in irqs.irqs if not immovable_reason(irq))
    movable = sorted(ours, key=lambda irq: (irq.device, irq.number))
    staying: dict[TargetKey, Wanted] = {}
    taken: dict[int, float] = {}
    for irq in movable:
        if kept := irq.cpus if places.is_right(irq) else _recorded(irq, places, context):
            why = "in place: off the CPUs of guests, near its device" if kept == irq.cpus else places.reason(irq)
            staying[irq.target.key] = _wanted(irq.target, kept, why)
            _take(taken, (kept & irq.effective) or kept)
    wanted = []
    for irq in movable:
        want = staying.get(irq.target.key)
        if want is None:
            least = min(places.for_irq(irq), key=lambda cpu: (taken.get(cpu, 0.0), cpu))
            want = _wanted(irq.target, CpuSet.of([least]), places.reason(irq))
            _take(taken, want.cpus)
        wanted.append(want)
    return tuple(wanted)


def _wanted(target: Target, cpus: CpuSet, reason: str) -> Wanted:
    return Wanted(target, cpus, reason, cpus)


def _recorded(irq: DeviceIrq, places: _Places, context: Context) -> CpuSet:
    recorded = context.places.get(irq.target.key, CpuSet())
    return recorded if recorded <= places.for_irq(irq) else CpuSet()


def _take(taken: dict[int, float], cpus: CpuSet) -> None:
    for cpu in cpus:
        taken[cpu] = taken.get(cpu, 0.0) + 1 / len(cpus)


def _left_out(irqs: DeviceIrqs, places: _Places) -> Iterator[LeftOut]:
    for irq in irqs.irqs:
        if (reason := immovable_reason(irq)) and not places.is_right(irq):
            yield LeftOut(irq.target, reason)


def _warnings(irqs: DeviceIrqs, places: _Places, context: Context) -> Iterator[str]:
    topology, may_ban = context.snapshot.topology, context.request.asks_for("irqbalance")
    for balancer in context.snapshot.irqbalance or irqs.balancers:
        banned = balancer.bans(topology.isolated | topology.nohz_full)
        if may_ban and balancer.banned_now is not None:
            continue  # the plan has its banned CPUs, too
        if banned is None:
            yield (
                f"irqbalance ({balancer.pid}) runs, and its environment cannot be read: it may move the interrupts back"
            )
        elif theirs := places.guests - banned:
            yield (
                f"irqbalance ({balancer.pid}) runs and may move interrupts back to the CPUs {theirs} of guests; set "
                f"IRQBALANCE_BANNED_CPULIST={places.guests | banned} in /etc/default/irqbalance and restart it, or "
                "plan --with irqbalance, too"
            )


def _commands(target: Target, state: State) -> Iterator[str]:
    yield f"echo {state} > /proc/irq/{target.part}/smp_affinity_list"


ROW = PlanRow(
    _objection,
    _commands,
    _additions,
    "interrupts",
    "a host whose interrupts are known; this snapshot has none, so take a new one",
)
