"""Why a thread is where it does not belong: the cause that fits what was seen of its host. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from pinner.model.cpuset import CpuSet
from pinner.model.drift import Cause, Drift

BALANCERS = ("numad", "tuned")
"""Services that move threads, by their processes' names."""
IRQBALANCE = "irqbalance"
"""Moves interrupts, and never a thread."""


@dataclass(frozen=True, slots=True)
class Cpuset:
    """A cpuset above a thread: its path below the controller's mount, and the CPUs that were written there (none: it
    confines nobody). ``part``: libvirt keeps it for one part of a guest."""

    path: str
    cpus: CpuSet
    part: bool = False


@dataclass(frozen=True, slots=True)
class Unit:
    """What systemd was told of a unit: AllowedCPUs= and CPUAffinity= (systemd.resource-control, systemd.exec); no CPUs
    where it was told nothing."""

    allowed: CpuSet = CpuSet()
    affinity: CpuSet = CpuSet()


@dataclass(frozen=True, slots=True)
class Seen:
    """What a host shows that may explain a drift."""

    cpusets: tuple[Cpuset, ...] = ()
    """Those above the first thread that is astray, innermost first."""
    pin: CpuSet | None = None
    """Where libvirt remembers that it pinned the target; None: nowhere."""
    units: Mapping[str, Unit] = field(default_factory=dict)
    """By the name of the unit, which is that of its cpuset's folder."""
    running: frozenset[str] = frozenset()
    """Which of BALANCERS and IRQBALANCE run."""


def explained(drift: Drift, seen: Seen) -> Drift:
    """The drift with the first cause that fits; one whose cause is known stays as it is."""
    if drift.cause != "unknown" or not drift.actual:
        return drift
    cause, detail = next(_causes(drift, seen))
    return replace(drift, cause=cause, detail=detail)


def _causes(drift: Drift, seen: Seen) -> Iterator[tuple[Cause, str]]:
    """The likeliest first: what confines the thread whatever its own mask is, what libvirt says it did, what was
    written behind libvirt's back, and who else is known to move threads."""
    for cpuset in seen.cpusets:
        if not cpuset.part and cpuset.cpus and not drift.expected <= cpuset.cpus:
            unit = seen.units.get(cpuset.path.rpartition("/")[2], Unit())
            if unit.allowed == cpuset.cpus:
                yield "systemd", f"AllowedCPUs={unit.allowed} of {cpuset.path.rpartition('/')[2]}"
            yield "cpuset", f"cpuset {cpuset.path} allows only CPUs {cpuset.cpus}"
    masks = {mask.cpus for mask in drift.actual}
    if seen.pin is not None and seen.pin != drift.expected and masks == {seen.pin}:
        yield "libvirt", f"another writer had libvirt pin it to CPUs {seen.pin}"
    for cpuset in seen.cpusets:
        if cpuset.part and cpuset.cpus and (masks == {cpuset.cpus} or not drift.expected <= cpuset.cpus):
            yield "cpuset", f"cpuset {cpuset.path} was given CPUs {cpuset.cpus}"
    for name, unit in seen.units.items():
        if unit.affinity and masks == {unit.affinity}:
            yield "systemd", f"CPUAffinity={unit.affinity} of {name}"
    if movers := [name for name in BALANCERS if name in seen.running]:
        yield "balancer", f"{' and '.join(movers)} runs here and moves threads"
    innocent = "; irqbalance runs here, but moves interrupts only" if IRQBALANCE in seen.running else ""
    yield "unknown", f"somebody set its threads' affinity, as taskset does{innocent}"
