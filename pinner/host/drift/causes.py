"""The likely cause of a drift, found from evidence of the host. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from pinner.model.cpuset import CpuSet
from pinner.model.policy.drift import Cause, Drift

BALANCERS = ("numad", "tuned")
"""Process names of the services that move threads."""
IRQBALANCE = "irqbalance"
"""irqbalance moves interrupts, never threads."""


@dataclass(frozen=True, slots=True)
class Cpuset:
    """A cpuset that contains a thread: its path below the controller's mount and its CPUs (empty: no restriction).
    ``part`` is true where libvirt made the cpuset for one part of a guest."""

    path: str
    cpus: CpuSet
    part: bool = False


@dataclass(frozen=True, slots=True)
class Unit:
    """systemd's settings of a unit: AllowedCPUs= and CPUAffinity= (systemd.resource-control, systemd.exec); no CPUs
    where a setting is absent."""

    allowed: CpuSet = CpuSet()
    affinity: CpuSet = CpuSet()


@dataclass(frozen=True, slots=True)
class DriftEvidence:
    """Facts of a host that may explain a drift."""

    cpusets: tuple[Cpuset, ...] = ()
    """The cpusets that contain the first misplaced thread, innermost first."""
    pin: CpuSet | None = None
    """The target's pin in libvirt's live XML; None where it has none."""
    units: Mapping[str, Unit] = field(default_factory=dict)
    """By the unit's name, which is also the name of its cpuset's folder."""
    running: frozenset[str] = frozenset()
    """The names of BALANCERS and IRQBALANCE that run."""


def with_cause(drift: Drift, evidence: DriftEvidence) -> Drift:
    """The drift with the first cause that fits; a drift with a known cause is returned unchanged."""
    if drift.cause != "unknown" or not drift.actual:
        return drift
    cause, detail = next(_causes(drift, evidence))
    return replace(drift, cause=cause, detail=detail)


def with_cause_of_irq(drift: Drift, running: frozenset[str]) -> Drift:
    """The drift of an interrupt with its likely cause; ``running`` as in Evidence."""
    if IRQBALANCE in running:
        return replace(drift, cause="balancer", detail="irqbalance runs on this host and moves interrupts")
    return replace(drift, detail="another program or its driver set the interrupt's affinity")


def _causes(drift: Drift, evidence: DriftEvidence) -> Iterator[tuple[Cause, str]]:
    """The possible causes, the most likely first: a cpuset that confines the thread with any mask, a pin set through
    libvirt, a cpuset written without libvirt, systemd's CPUAffinity=, and services that move threads."""
    for cpuset in evidence.cpusets:
        if not cpuset.part and cpuset.cpus and not drift.expected <= cpuset.cpus:
            unit = evidence.units.get(cpuset.path.rpartition("/")[2], Unit())
            if unit.allowed == cpuset.cpus:
                yield "systemd", f"AllowedCPUs={unit.allowed} of {cpuset.path.rpartition('/')[2]}"
            yield "cpuset", f"cpuset {cpuset.path} allows only CPUs {cpuset.cpus}"
    masks = {mask.cpus for mask in drift.actual}
    if evidence.pin is not None and evidence.pin != drift.expected and masks == {evidence.pin}:
        yield "libvirt", f"another libvirt client pinned it to CPUs {evidence.pin}"
    for cpuset in evidence.cpusets:
        if cpuset.part and cpuset.cpus and (masks == {cpuset.cpus} or not drift.expected <= cpuset.cpus):
            yield "cpuset", f"another program wrote CPUs {cpuset.cpus} to cpuset {cpuset.path}"
    for name, unit in evidence.units.items():
        if unit.affinity and masks == {unit.affinity}:
            yield "systemd", f"CPUAffinity={unit.affinity} of {name}"
    if movers := [name for name in BALANCERS if name in evidence.running]:
        yield "balancer", f"services on this host move threads: {', '.join(movers)}"
    irqbalance = "; irqbalance runs too, but moves only interrupts" if IRQBALANCE in evidence.running else ""
    who = "the process itself or another program" if drift.target.kind == "process" else "another program"
    yield "unknown", f"{who} set its threads' affinity, for example taskset{irqbalance}"
