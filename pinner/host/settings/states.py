"""The states of targets without threads: read and set below a root, by the kind of the target."""

from pathlib import Path
from typing import assert_never

from pinner.host.kernel import cgroups
from pinner.host.settings import (
    coalescing,
    cpu_weights,
    governors,
    guest_rps,
    interrupts,
    irqbalance,
    queues,
    rings,
    rps,
    sysctls,
)
from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import ApplyFailed
from pinner.model.kinds import Governor, GuestCpus, Number, PartitionState, State


def state_of(root: Path, target: Target, agents: guest_rps.Agents | None = None) -> State:
    """The present state of the target; ``agents`` are those of the guests. Raises Gone."""
    match target.kind:
        case "workqueue":
            return cgroups.unbound(root)
        case "irq":
            return interrupts.affinity(root, target)
        case "rps":
            return rps.cpus_of(root, target)
        case "sysctl":
            return sysctls.value_of(root, target)
        case "ring" | "coalescing" | "queues":
            return _number_of(target)
        case "governor":
            return governors.governor_of(root, target)
        case "irqbalance":
            return irqbalance.banned_cpus(target)
        case "guest_rps":
            return guest_rps.vcpus_of(_needed(agents, target), target)
        case "weight":
            return cpu_weights.weight_of(root, target)
    return cgroups.partition(root, target.owner)


def set_state(root: Path, target: Target, state: State, agents: guest_rps.Agents | None = None) -> None:
    """Give the target this state and read it back. Raises Gone, NotPermitted, ApplyFailed."""
    match state:
        case CpuSet() if target.kind == "irq":
            interrupts.set_affinity(root, target, state)
        case CpuSet() if target.kind == "rps":
            rps.set_cpus(root, target, state)
        case CpuSet() if target.kind == "irqbalance":
            irqbalance.set_banned(target, state)
        case CpuSet():
            cgroups.set_unbound(root, state)
        case PartitionState():
            cgroups.set_partition(root, target.owner, state, cgroups.allow)
        case Number():
            _set_number(root, target, state)
        case GuestCpus():
            guest_rps.set_vcpus(_needed(agents, target), target, state)
        case Governor():
            governors.set_governor(root, target, state)
        case _:
            assert_never(state)


def _number_of(target: Target) -> Number:
    match target.kind:
        case "ring":
            return rings.size_of(target)
        case "coalescing":
            return coalescing.usecs_of(target)
    return queues.count_of(target)


def _needed(agents: guest_rps.Agents | None, target: Target) -> guest_rps.Agents:
    if agents is None:
        raise ApplyFailed(str(target), "the agents of guests cannot be reached without libvirt")
    return agents


def _set_number(root: Path, target: Target, number: Number) -> None:
    match target.kind:
        case "ring":
            rings.set_size(target, number)
        case "coalescing":
            coalescing.set_usecs(target, number)
        case "queues":
            queues.set_count(target, number)
        case "weight":
            cpu_weights.set_weight(root, target, number)
        case _:
            sysctls.set_value(root, target, number)
