"""Findings of `pinner check`: what on a host hurts its guests."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pinner.model.change import Target
from pinner.model.reading import HostReading

Severity = Literal["warning", "critical", "unknown"]
"""warning: it costs time; critical: guests lose packets, time or memory now; unknown: the check could not be made."""

HostState = Literal["ok", "warning", "critical", "unknown"]
"""The worst severity; unknown: nothing is known to be wrong, and not all is known."""

SubjectKind = Literal[
    "host", "guest", "tap", "nic", "device", "irq", "cpu", "node", "sysctl", "socket", "process", "check"
]
"""check: one that could not be made."""

Needs = Literal["nothing", "reboot", "guest restart", "guest owner"]


@dataclass(frozen=True, slots=True)
class Subject:
    """The thing that a finding is about."""

    kind: SubjectKind
    """The kind of thing."""
    name: str
    """Name of a NIC, guest or process, number of an IRQ or CPU, key of a sysctl."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """A fact that shows a finding."""

    name: str
    value: int | float | str
    """A number, or a text such as a CPU list or a setting's value."""
    unit: str = ""
    """A number's unit (packets, %, 1/s); empty for a text and for a plain count."""

    def __str__(self) -> str:
        value = f"{self.value:.4g}" if isinstance(self.value, float) else str(self.value)
        return " ".join(part for part in (self.name, value or "none", self.unit) if part)


@dataclass(frozen=True, slots=True)
class Remedy:
    """What ends the fault, and where it belongs."""

    line: str
    """The exact command for root, line of a file, or element of a domain's XML."""
    where: str
    """``as root``, a file, the kernel's command line, a guest's domain XML."""
    needs: Needs = "nothing"
    """What it needs to take effect."""


@dataclass(frozen=True, slots=True)
class Found:
    subject: Subject
    message: str
    evidence: tuple[Evidence, ...]
    remedies: tuple[Remedy, ...] = ()
    severity: Severity | None = None
    """None: that of the check."""
    targets: tuple[Target, ...] = ()
    """Settings whose change would cure the fault."""


@dataclass(frozen=True, slots=True)
class HostCheck:
    """A pure function of a reading. Plug-ins name tuples of checks in an entry point of the group ``pinner.checks``."""

    code: str
    """It never changes."""
    severity: Severity
    summary: str
    why: str
    source: str
    find: Callable[[HostReading], Iterable[Found]]
    critical: str = ""
    """When a finding is critical instead; empty: never, or always."""


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """A fault of a host that hurts its guests, or a check that could not be made."""

    code: str
    """The check's; it never changes."""
    severity: Severity
    """How bad it is."""
    subject: Subject
    message: str
    """The fault in one sentence."""
    evidence: tuple[Evidence, ...]
    """Facts that show it."""
    why: str
    """Why it hurts."""
    source: str
    """The document that says so."""
    remedies: tuple[Remedy, ...]
    """Lines that end or ease it."""
    is_fixable: bool = False
    """Whether a plan can cure it: `pinner plan --fix CODE`."""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What the checks found on a host."""

    host: str
    taken_at: datetime
    sample_seconds: float
    """Between two samples of the counters; 0: there was one."""
    state: HostState
    """The findings' worst severity."""
    checks: int
    """Number of checks that were made."""
    findings: tuple[CheckFinding, ...]
    """The worst first."""


RANKS: tuple[Severity, ...] = ("critical", "warning", "unknown")


def finding(check: HostCheck, found: Found, *, is_fixable: bool = False) -> CheckFinding:
    return CheckFinding(
        code=check.code,
        severity=found.severity or check.severity,
        subject=found.subject,
        message=found.message,
        evidence=found.evidence,
        why=check.why,
        source=check.source,
        remedies=found.remedies,
        is_fixable=is_fixable,
    )


def not_known(check: HostCheck, subject: Subject, why: str) -> CheckFinding:
    message = f"not known, because {why}"
    return finding(check, Found(subject, message, (Evidence("reason", why),), severity="unknown"))


def report(reading: HostReading, findings: Iterable[CheckFinding], checks: int) -> CheckReport:
    ordered = sorted(findings, key=lambda each: (RANKS.index(each.severity), each.code, str(each.subject)))
    return CheckReport(
        host=reading.snapshot.host,
        taken_at=reading.snapshot.taken_at,
        sample_seconds=reading.seconds,
        state=ordered[0].severity if ordered else "ok",
        checks=checks,
        findings=tuple(ordered),
    )
