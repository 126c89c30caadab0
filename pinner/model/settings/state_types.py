"""The type of the state of each kind of target."""

from pinner.model.change import GuestCpus, Number, PartitionState, State, TargetKind
from pinner.model.cpuset import CpuSet
from pinner.model.governor import Governor


def type_of_state(kind: TargetKind) -> type[State]:
    """The type of the state of a target of this kind, which has no threads."""
    match kind:
        case "partition":
            return PartitionState
        case "sysctl" | "ring" | "coalescing" | "queues" | "weight":
            return Number
        case "governor":
            return Governor
        case "guest_rps":
            return GuestCpus
    return CpuSet
