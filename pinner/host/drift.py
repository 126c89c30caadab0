"""The likely cause of a drift, from evidence of the host: cpusets, systemd's settings, services."""

import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from pinner.host.kernel import cgroups, files, procfs
from pinner.host.kernel.kernel import cpuset_mount
from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid, PinnerError
from pinner.model.kinds import PINNED
from pinner.model.machine.process import host_unit
from pinner.model.policy import Cause, Drift

BALANCERS = ("numad", "tuned")
"""Services that move threads."""
IRQBALANCE = "irqbalance"


@dataclass(frozen=True, slots=True)
class Cpuset:
    """``path`` is below the controller's mount. No ``cpus``: no restriction. ``part``: libvirt made it for that."""

    path: str
    cpus: CpuSet
    part: bool = False


@dataclass(frozen=True, slots=True)
class Unit:
    """AllowedCPUs= and CPUAffinity= (systemd.resource-control, systemd.exec); an absent setting has no CPUs."""

    allowed: CpuSet = CpuSet()
    affinity: CpuSet = CpuSet()


@dataclass(frozen=True, slots=True)
class DriftEvidence:
    cpusets: tuple[Cpuset, ...] = ()
    """The cpusets of the first misplaced thread, innermost first."""
    pin: CpuSet | None = None
    """The pin in libvirt's live XML."""
    units: Mapping[str, Unit] = field(default_factory=dict)
    """The units by name, with that of the cpuset's folder."""
    running: frozenset[str] = frozenset()


def with_cause(drift: Drift, evidence: DriftEvidence) -> Drift:
    if drift.cause != "unknown" or not drift.actual:
        return drift
    cause, detail = next(_causes(drift, evidence))
    return replace(drift, cause=cause, detail=detail)


def with_cause_of_irq(drift: Drift, running: frozenset[str]) -> Drift:
    if IRQBALANCE in running:
        return replace(drift, cause="balancer", detail="irqbalance runs on this host and moves interrupts")
    return replace(drift, detail="another program or its driver set the interrupt's affinity")


def _causes(drift: Drift, evidence: DriftEvidence) -> Iterator[tuple[Cause, str]]:
    for cpuset in evidence.cpusets:
        if not cpuset.part and cpuset.cpus and not drift.expected <= cpuset.cpus:
            unit = evidence.units.get(host_unit(cpuset.path), Unit())
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


_BOOTED = "run/systemd/system"
"""Exists where systemd is the init process (sd_booted(3))."""
_SYSTEMD_SECONDS = 5


def explain_drifts(
    root: Path, drifts: tuple[Drift, ...], pin_of: Callable[[Target], CpuSet | None]
) -> tuple[Drift, ...]:
    """``pin_of`` reads libvirt's live XML, and may raise PinnerError."""
    running = cache(lambda: frozenset((*BALANCERS, IRQBALANCE)) & {name for _, name in procfs.names_of_all(root)})
    unit = cache(lambda name: _unit(root, name))

    def evidence_of(drift: Drift) -> DriftEvidence:
        confining = _cpusets_of(root, drift.actual[0].tid)
        names = [name for cpuset in confining if (name := host_unit(cpuset.path))]
        return DriftEvidence(confining, _pin(drift.target, pin_of), {name: unit(name) for name in names}, running())

    def explained(drift: Drift) -> Drift:
        if drift.cause == "unknown" and drift.target.kind == "irq":
            return with_cause_of_irq(drift, running())
        return with_cause(drift, evidence_of(drift)) if drift.cause == "unknown" and drift.actual else drift

    return tuple(map(explained, drifts))


def _cpusets_of(root: Path, tid: int) -> tuple[Cpuset, ...]:
    mount = cpuset_mount(root)
    return tuple(
        Cpuset(
            str(folder.relative_to(mount.folder)),
            files.cpu_list(folder / cgroups.CPUS) or CpuSet(),
            cgroups.part_of(folder.name) is not None,
        )
        for folder in cgroups.folders_of(root, mount, tid)
    )


def _pin(target: Target, pin_of: Callable[[Target], CpuSet | None]) -> CpuSet | None:
    if target.kind not in PINNED:
        return None
    try:
        return pin_of(target)
    except PinnerError:
        return None


def _unit(root: Path, name: str) -> Unit:
    if not (root / _BOOTED).is_dir():
        return Unit()
    command = ["systemctl", "show", "--property=AllowedCPUs", "--property=CPUAffinity", "--", name]
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_SYSTEMD_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return Unit()
    return parse_unit(done.stdout)


def parse_unit(text: str) -> Unit:
    settings = dict(line.partition("=")[::2] for line in text.splitlines())
    return Unit(_cpus(settings.get("AllowedCPUs", "")), _cpus(settings.get("CPUAffinity", "")))


def _cpus(text: str) -> CpuSet:
    try:
        return CpuSet.parse(",".join(text.replace(",", " ").split()))
    except Invalid:
        return CpuSet()
