"""Collects the evidence of a live host that may explain a drift (see causes): cpusets, systemd's settings, services."""

import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

from pinner.host.drift import causes
from pinner.host.drift.causes import Cpuset, DriftEvidence, Unit
from pinner.host.kernel import cpusets, files
from pinner.host.kernel.kernel import cpuset_mount
from pinner.host.watch.watched import names_of_all
from pinner.model.change import Target
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid, PinnerError
from pinner.model.kinds import PINNED
from pinner.model.policy.drift import Drift

_BOOTED = "run/systemd/system"
"""This folder exists where systemd is the init process (sd_booted(3))."""
_SYSTEMD_SECONDS = 5


def explain_drifts(
    root: Path, drifts: tuple[Drift, ...], pin_of: Callable[[Target], CpuSet | None]
) -> tuple[Drift, ...]:
    """The drifts with their causes. ``pin_of`` returns a part's pin in libvirt's live XML; it may raise PinnerError."""
    running = cache(lambda: _running(root))
    unit = cache(lambda name: _unit(root, name))

    def evidence_of(drift: Drift) -> DriftEvidence:
        found = _cpusets_of(root, drift.actual[0].tid)
        names = [name for cpuset in found if (name := cpuset.path.rpartition("/")[2]).endswith(cpusets.UNITS)]
        return DriftEvidence(found, _pin(drift.target, pin_of), {name: unit(name) for name in names}, running())

    def explained(drift: Drift) -> Drift:
        if drift.cause == "unknown" and drift.target.kind == "irq":
            return causes.with_cause_of_irq(drift, running())
        return causes.with_cause(drift, evidence_of(drift)) if drift.cause == "unknown" and drift.actual else drift

    return tuple(map(explained, drifts))


def _cpusets_of(root: Path, tid: int) -> tuple[Cpuset, ...]:
    mount = cpuset_mount(root)
    return tuple(
        Cpuset(
            str(folder.relative_to(mount.folder)),
            files.cpu_list(folder / cpusets.CPUS) or CpuSet(),
            cpusets.part_of(folder.name) is not None,
        )
        for folder in cpusets.folders_of(root, mount, tid)
    )


def _pin(target: Target, pin_of: Callable[[Target], CpuSet | None]) -> CpuSet | None:
    if target.kind not in PINNED:
        return None
    try:
        return pin_of(target)
    except PinnerError:
        return None


def _running(root: Path) -> frozenset[str]:
    names = {name for _, name in names_of_all(root)}
    return frozenset(names & {*causes.BALANCERS, causes.IRQBALANCE})


def _unit(root: Path, name: str) -> Unit:
    """systemd's settings of a unit; empty where systemd does not answer."""
    if not (root / _BOOTED).is_dir():
        return Unit()
    command = ["systemctl", "show", "--property=AllowedCPUs", "--property=CPUAffinity", "--", name]
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=_SYSTEMD_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return Unit()
    return parse_unit(done.stdout)


def parse_unit(text: str) -> Unit:
    """The settings in the output of ``systemctl show``: CPUs and ranges, separated by spaces."""
    found = dict(line.partition("=")[::2] for line in text.splitlines())
    return Unit(_cpus(found.get("AllowedCPUs", "")), _cpus(found.get("CPUAffinity", "")))


def _cpus(text: str) -> CpuSet:
    try:
        return CpuSet.parse(",".join(text.replace(",", " ").split()))
    except Invalid:
        return CpuSet()
