"""The states of targets without threads, from cgroup v2 partitions to settings of cards, and the commands that change
them."""

from collections.abc import Iterator, Mapping
from shlex import quote
from typing import assert_never

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet, union
from pinner.model.kinds import Governor, GuestCpus, Number, PartitionState, State, TargetKind
from pinner.model.plan.request import Request
from pinner.model.settings.cpu_weight import DEFAULT, weight_target
from pinner.model.settings.sysctls import SYSCTLS
from pinner.model.snapshot import Snapshot

WORK = Target("workqueue", "", None, "unbound kernel work")
_MOUNT = "/sys/fs/cgroup"
_POSSIBLE = "/sys/devices/system/cpu/possible"
_ETHTOOL: Mapping[TargetKind, tuple[str, str]] = {
    "ring": ("-G", "rx"),
    "coalescing": ("-C", "rx-usecs"),
    "queues": ("-L", "combined"),
}
"""The option of ethtool and the name of the setting, by the kind of a target that belongs to a card."""
_WORKQUEUE = "/sys/devices/virtual/workqueue/cpumask"


def settings(snapshot: Snapshot) -> dict[Target, State]:
    """Every target that has a state, with its state: the cgroups of the guests' units, the work queues, and each
    setting of the host that a plan may change."""
    found: dict[Target, State] = {
        cgroup_target(cgroup.path): cgroup.state for guest in snapshot.guests for cgroup in guest.cgroups
    }
    unbound = snapshot.topology.kernel.unbound
    irqs = {irq.target: irq.cpus for irq in snapshot.irqs.irqs} if snapshot.irqs else {}
    rps = {queue.target: queue.cpus for queue in snapshot.rps or ()}
    known = ((SYSCTLS[key], value) for key, value in (snapshot.sysctls or {}).items() if key in SYSCTLS)
    sysctls = {rule.target: Number(value) for rule, value in known}
    rings = {ring.target: Number(ring.size) for ring in snapshot.rings or ()}
    governors = {domain.target: domain.governor for domain in snapshot.governors or ()}
    coalescing = {card.target: Number(card.usecs) for card in snapshot.coalescing or ()}
    balancers = {each.target: each.banned_now for each in snapshot.irqbalance or () if each.banned_now is not None}
    queues = {card.target: Number(card.count) for card in snapshot.queues or ()}
    inside = {each.target(it): GuestCpus(it.vcpus) for each in snapshot.guest_rps or () for it in each.queues}
    slices = {weight_target(name): Number(weight) for name, weight in (snapshot.cpu_weights or {}).items()}
    work: dict[Target, State] = {WORK: unbound} if unbound else {}
    return found | work | irqs | rps | sysctls | rings | governors | coalescing | balancers | queues | inside | slices


def cgroup_target(path: str) -> Target:
    """The cgroup at ``path``."""
    return Target("partition", path, None, path.rpartition("/")[2])


def partitioned(snapshot: Snapshot, request: Request) -> CpuSet:
    """The CPUs in partitions of guests' units, if the request asks for live isolation: its plan may allocate these
    CPUs."""
    if request.isolation != "live":
        return CpuSet()
    states = (cgroup.state for guest in snapshot.guests for cgroup in guest.cgroups)
    return union(state.cpus for state in states if state.kind != "member" and not state.invalid)


def commands(target: Target, state: State) -> Iterator[str]:
    """The shell commands that give the target this state."""
    match state:
        case CpuSet() if target.kind == "irq":
            yield f"echo {state} > /proc/irq/{target.part}/smp_affinity_list"
        case CpuSet() if target.kind == "rps":
            yield f"echo {state.mask()} > /sys/class/net/{quote(target.name)}/queues/rx-{target.part}/rps_cpus"
        case CpuSet() if target.kind == "irqbalance":
            path = f"/run/irqbalance/irqbalance{target.owner}.sock"
            yield f"printf 'settings cpus {state or 'NULL'}' | socat - UNIX-CONNECT:{path}"
        case CpuSet():
            yield f"echo {state.mask()} > {_WORKQUEUE}"
        case PartitionState():
            yield from _partition_commands(target, state)
        case Number():
            yield from _number_commands(target, state)
        case GuestCpus():
            interface = target.owner.split(" ")[2]
            path = f"/sys/class/net/{quote(interface)}/queues/rx-{target.part}/rps_cpus"
            yield f"# inside the guest: echo {state.vcpus.mask()} > {path}"
        case Governor():
            yield f"echo {quote(state.name)} > /sys/devices/system/cpu/cpufreq/policy{target.part}/scaling_governor"
        case _:
            assert_never(state)


def _partition_commands(target: Target, state: PartitionState) -> Iterator[str]:
    allow = f"systemctl set-property --runtime {_quoted(target.name)} AllowedCPUs={state.cpus}"
    folder = f"{_MOUNT}/{target.owner}"
    become = f"echo {state.kind} > {_quoted(f'{folder}/cpuset.cpus.partition')}"
    if state.kind == "member":
        own = state.cpus or f"$(cat {_POSSIBLE})"
        yield from (become, allow, f"echo {own} > {_quoted(f'{folder}/cpuset.cpus')}")
    else:
        check = f"cat {_quoted(f'{folder}/cpuset.cpus.partition')}  # must say: {state.kind}; else it says why not"
        yield from (allow, become, check)


def _number_commands(target: Target, number: Number) -> Iterator[str]:
    if target.kind in _ETHTOOL:
        option, what = _ETHTOOL[target.kind]
        yield f"ethtool {option} {quote(target.name)} {what} {number}"
    elif target.kind != "weight":
        yield f"sysctl -w {quote(target.owner)}={number}"
    elif number != DEFAULT:
        yield f"systemctl set-property --runtime {quote(target.name)} CPUWeight={number}"
    else:
        yield f"systemctl set-property --runtime {quote(target.name)} CPUWeight="
        yield f"rm -f /run/systemd/system.control/{quote(target.name)}.d/50-CPUWeight.conf"


def _quoted(name: str) -> str:
    """The name as a word for a shell: always with quotes, because most of these names have backslashes."""
    return "'" + name.replace("'", """'"'"'""") + "'"
