"""A made-up host for each kind of setting, on which a plan changes one target of the kind."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from support import hosts
from support.hosts import cpus

from pinner import codec
from pinner.model.change import StateChange, Target
from pinner.model.cpuset import CpuSet
from pinner.model.kinds import KINDS, TargetKind
from pinner.model.machine.interrupts import Balancer, DeviceIrq, DeviceIrqs
from pinner.model.machine.topology import FAST, FrequencyDomain
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.settings.cards import CardQueues, RpsQueue, RxCoalescing, RxRing
from pinner.model.settings.cpu_weights import DEFAULT, RAISED, SLICE
from pinner.model.settings.inside import (
    BUFFERS,
    FLOWS,
    FlowQueue,
    GuestIrq,
    GuestIrqs,
    GuestQueue,
    GuestRfs,
    GuestRps,
    GuestSysctls,
)
from pinner.model.settings.power import PERFORMANCE, SHALLOW, EnergyDomain, WakeLimit
from pinner.model.snapshot import Snapshot
from pinner.model.states import Coalescing, Governor, GuestCpus, Number, State, Word
from pinner.planning import planner

GUEST = hosts.guest(1, 2, cpus("4-15"))
BALANCER = Balancer(812, "--foreground", cpus(""), 77, banned_now=cpus("2"))


@dataclass(frozen=True)
class Case:
    """16 CPUs with a guest on 4-15, 0-1 for processes, 2-3 for emulators."""

    kind: TargetKind
    field: Any
    """The setting in the snapshot."""
    words: str
    """The target that the plan changes."""
    before: State
    after: State
    do: str
    undo: str
    """The lines of the script; for several lines the first one."""
    with_state: Callable[[State], Any]
    """The field with another state of this target."""
    another: Any
    """The field with another target under the same name, or without the target."""
    bad: Mapping[str, State]
    """States that no plan gives to the target, by the agent's reasons."""

    @cached_property
    def request(self) -> Request:
        return Request(remedies=(self.remedy,))

    @property
    def remedy(self) -> Any:
        return KINDS[self.kind].remedy

    def host(self, field: Any) -> Snapshot:
        return hosts.snapshot(hosts.plain(16), [GUEST], **{KINDS[self.kind].module: field})

    @cached_property
    def taken(self) -> Snapshot:
        return self.host(self.field)

    def plan(self, taken: Snapshot | None = None, request: Request | None = None) -> Plan:
        taken = taken or self.taken
        return planner.plan(taken, codec.content_hash(taken), request or self.request)

    @cached_property
    def change(self) -> StateChange:
        """The plan's change of this kind."""
        (change,) = (each for each in self.plan().changes if each.target.kind == self.kind)
        assert isinstance(change, StateChange)
        return change

    @property
    def target(self) -> Target:
        return self.change.target

    def applied(self, made: Plan, state: State) -> Snapshot:
        """The host after the plan, with this state of the target."""
        return replace(hosts.applied(self.taken, made), **{KINDS[self.kind].module: self.with_state(state)})


IRQ = DeviceIrq(24, "ens1-rx-0", "0000:3b:00.0", cpus("0-15"))
RPS = RpsQueue("ens1", 2, 0, cpus("0-15"))
RING = RxRing("ens1", 2, 512, 4096, has_dropped=True)
DOMAIN = FrequencyDomain(4, cpus("4-7"), Governor("powersave"))
OFFERED = ("default", "performance", "balance_performance", "balance_power", "power")
ENERGY = EnergyDomain(4, cpus("4-7"), Word("balance_performance"), OFFERED, "powersave")
WAKE = WakeLimit(4, Word("0"), 133)
CARD = RxCoalescing("ens1", 2, 0, 0, False, 90_000.0)
QUEUES = CardQueues("ens1", 2, 1, 8)
QUEUE = GuestQueue("eth0", 2, 0, cpus(""))
INSIDE = GuestRps(GUEST.uuid, "g1", "11111111-2222-3333-4444-555555555555", cpus("0-1"), (QUEUE,))

FLOW_QUEUE = FlowQueue("eth0", 2, 0, 0)
STEERED = GuestRfs(GUEST.uuid, "g1", INSIDE.boot, 4096, (FLOW_QUEUE,))

GUEST_IRQ = GuestIrq(27, "virtio0-input.0", "eth0", 2, 0, cpus("0-1"))
INTERRUPTED = GuestIrqs(GUEST.uuid, "g1", INSIDE.boot, cpus("0-1"), (GUEST_IRQ,))

BUFFERED = GuestSysctls(GUEST.uuid, "g1", INSIDE.boot, {"net.core.rmem_max": 212_992, "net.core.rmem_default": 212_992})


def number(state: State) -> int:
    assert isinstance(state, Number)
    return state.value


_CASES = (
    Case(
        "irq",
        DeviceIrqs((IRQ,)),
        "irq 24 ens1-rx-0 (0000:3b:00.0)",
        IRQ.cpus,
        cpus("0"),
        "echo 0 > /proc/irq/24/smp_affinity_list",
        "echo 0-15 > /proc/irq/24/smp_affinity_list",
        lambda state: DeviceIrqs((replace(IRQ, cpus=state),)),
        DeviceIrqs((replace(IRQ, name="other"),)),
        {"CPUs 9 are": cpus("9")},
    ),
    Case(
        "rps",
        (RPS,),
        "rps ens1 rx-0",
        RPS.cpus,
        cpus("0-1"),
        "echo 00000003 > /sys/class/net/ens1/queues/rx-0/rps_cpus",
        "echo 0000ffff > /sys/class/net/ens1/queues/rx-0/rps_cpus",
        lambda state: (replace(RPS, cpus=state),),
        (replace(RPS, index=9),),
        {"are for guests": cpus("0-4")},
    ),
    Case(
        "sysctl",
        {"vm.swappiness": 60},
        "sysctl vm.swappiness",
        Number(60),
        Number(1),
        "sysctl -w vm.swappiness=1",
        "sysctl -w vm.swappiness=60",
        lambda state: {"vm.swappiness": number(state)},
        {},
        {"a plan gives it the value 1, and no other": Number(0)},
    ),
    Case(
        "ring",
        (RING,),
        "ring ens1",
        Number(512),
        Number(4096),
        "ethtool -G ens1 rx 4096",
        "ethtool -G ens1 rx 512",
        lambda state: (replace(RING, size=number(state)),),
        (replace(RING, index=9),),
        {"the maximum of 4096 packets, and no other size": Number(64)},
    ),
    Case(
        "governor",
        (DOMAIN,),
        "governor of CPUs 4-7",
        DOMAIN.governor,
        FAST,
        "echo performance > /sys/devices/system/cpu/cpufreq/policy4/scaling_governor",
        "echo powersave > /sys/devices/system/cpu/cpufreq/policy4/scaling_governor",
        lambda state: (replace(DOMAIN, governor=state),),
        (replace(DOMAIN, cpus=cpus("4-5")),),
        {"a plan gives it the governor performance, and no other": Governor("userspace")},
    ),
    Case(
        "epp",
        (ENERGY,),
        "energy preference of CPUs 4-7",
        ENERGY.preference,
        PERFORMANCE,
        "echo performance > /sys/devices/system/cpu/cpufreq/policy4/energy_performance_preference",
        "echo balance_performance > /sys/devices/system/cpu/cpufreq/policy4/energy_performance_preference",
        lambda state: (replace(ENERGY, preference=state),),
        (replace(ENERGY, cpus=cpus("4-5")),),
        {"a plan gives it the preference performance, and no other": Word("power")},
    ),
    Case(
        "latency",
        (WAKE,),
        "resume latency of CPU 4",
        WAKE.limit,
        SHALLOW,
        "echo 49 > /sys/devices/system/cpu/cpu4/power/pm_qos_resume_latency_us",
        "echo 0 > /sys/devices/system/cpu/cpu4/power/pm_qos_resume_latency_us",
        lambda state: (replace(WAKE, limit=state),),
        (replace(WAKE, cpu=9),),
        {"a plan gives it 49 us, and no other limit": Word("n/a")},
    ),
    Case(
        "coalescing",
        (CARD,),
        "coalescing ens1",
        Coalescing(0),
        Coalescing(50),
        "ethtool -C ens1 rx-usecs 50",
        "ethtool -C ens1 rx-usecs 0",
        lambda state: (replace(CARD, usecs=state.usecs, frames=state.frames, is_adaptive=state.is_adaptive),),
        (replace(CARD, index=9),),
        {"a plan gives it 50 us, and no other time": Coalescing(1 << 31)},
    ),
    Case(
        "irqbalance",
        (BALANCER,),
        "irqbalance (812)",
        cpus("2"),
        cpus("2-15"),
        "printf 'settings cpus 2-15' | socat - UNIX-CONNECT:/run/irqbalance/irqbalance812.sock",
        "printf 'settings cpus 2' | socat - UNIX-CONNECT:/run/irqbalance/irqbalance812.sock",
        lambda state: (replace(BALANCER, banned_now=state),),
        (replace(BALANCER, started=78),),
        {"CPUs 2 were banned before, and a plan only adds CPUs": cpus("4-15")},
    ),
    Case(
        "queues",
        (QUEUES,),
        "queues ens1",
        Number(1),
        Number(8),
        "ethtool -L ens1 combined 8",
        "ethtool -L ens1 combined 1",
        lambda state: (replace(QUEUES, count=number(state)),),
        (replace(QUEUES, index=9),),
        {"a plan gives it 8 queues, and no other number": Number(64)},
    ),
    Case(
        "guest_rps",
        (INSIDE,),
        "guest g1 eth0 rps rx-0",
        GuestCpus(CpuSet()),
        GuestCpus(cpus("0-1")),
        "# inside the guest: echo 00000003 > /sys/class/net/eth0/queues/rx-0/rps_cpus",
        "# inside the guest: echo 00000000 > /sys/class/net/eth0/queues/rx-0/rps_cpus",
        lambda state: (replace(INSIDE, queues=(replace(QUEUE, vcpus=state.vcpus),)),),
        (replace(INSIDE, boot=INSIDE.boot[::-1]),),
        {"a plan gives it '0-1', not '0'": GuestCpus(cpus("0"))},
    ),
    Case(
        "guest_rfs",
        (STEERED,),
        "guest g1 eth0 rx-0 rps_flow_cnt",
        Number(0),
        FLOWS,
        "# inside the guest: echo 4096 > /sys/class/net/eth0/queues/rx-0/rps_flow_cnt",
        "# inside the guest: echo 0 > /sys/class/net/eth0/queues/rx-0/rps_flow_cnt",
        lambda state: (replace(STEERED, queues=(replace(FLOW_QUEUE, flows=number(state)),)),),
        (replace(STEERED, boot=INSIDE.boot[::-1]),),
        {"a plan gives it '4096', not '8192'": Number(8192)},
    ),
    Case(
        "guest_irq",
        (INTERRUPTED,),
        "guest g1 virtio0-input.0 irq 27",
        GuestCpus(cpus("0-1")),
        GuestCpus(cpus("1")),
        "# inside the guest: echo 1 > /proc/irq/27/smp_affinity_list",
        "# inside the guest: echo 0-1 > /proc/irq/27/smp_affinity_list",
        lambda state: (replace(INTERRUPTED, irqs=(replace(GUEST_IRQ, vcpus=state.vcpus),)),),
        (replace(INTERRUPTED, irqs=(replace(GUEST_IRQ, name="virtio1-input.0"),)),),
        {"a plan gives it '1', not '0'": GuestCpus(cpus("0"))},
    ),
    Case(
        "guest_sysctl",
        (BUFFERED,),
        "guest g1 net.core.rmem_max",
        Number(212_992),
        Number(BUFFERS["net.core.rmem_max"]),
        "# inside the guest: sysctl -w net.core.rmem_max=26214400",
        "# inside the guest: sysctl -w net.core.rmem_max=212992",
        lambda state: (replace(BUFFERED, values={**BUFFERED.values, "net.core.rmem_max": number(state)}),),
        (replace(BUFFERED, boot=INSIDE.boot[::-1]),),
        {"a plan gives it '26214400', not '1073741824'": Number(1 << 30)},
    ),
    Case(
        "weight",
        {SLICE: 100},
        "weight machine.slice",
        DEFAULT,
        RAISED,
        "systemctl set-property --runtime machine.slice CPUWeight=1000",
        "systemctl set-property --runtime machine.slice CPUWeight=",
        lambda state: {SLICE: number(state)},
        {},
        {"a plan gives it the weight 1000, and no other": Number(10_000)},
    ),
)
CASES: Mapping[TargetKind, Case] = {case.kind: case for case in _CASES}
