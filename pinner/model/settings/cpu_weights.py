"""The CPU weight of machine.slice, in which systemd puts all guests of libvirt."""

from collections.abc import Mapping

from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.states import Number

SLICE = "machine.slice"
DEFAULT = Number(100)
"""For a slice without a weight (systemd.resource-control(5), CPUWeight=)."""
RAISED = Number(1000)
"""Beside a busy vCPU, another thread still gets 1/11 of the CPU: above the kernel's 5 % beside real-time threads."""


def weight_target(name: str) -> Target:
    return Target("weight", name, None, name)


WEIGHT = weight_target(SLICE)
"""A plan changes no other."""


def why_not(weight: int | None, vcpus: CpuSet, balanced: CpuSet, slices: Mapping[str, str]) -> str:
    """Why no plan raises the weight; else empty. ``vcpus`` are CPUs that vCPUs may use, ``balanced`` those between
    which the kernel moves threads, ``slices`` each guest's outermost unit."""
    if weight is None:
        return f"systemd has no {SLICE} with a CPU weight on this host"
    if weight != DEFAULT.value:
        return f"its weight is {weight}, which somebody has set"
    for guest, other in slices.items():
        if other != SLICE:
            return f"guest {guest} is in {other}, not in {SLICE}, and would wait longer"
    if not vcpus & balanced:
        return "vCPUs share no CPU with processes of the host"
    if not balanced - vcpus:
        return "processes of the host have no CPU without vCPUs, so they would wait too long"
    return ""
