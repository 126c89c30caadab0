"""What `pinner nova check` reports."""

from collections.abc import Iterator
from dataclasses import replace

from pinner.model.guest.nova import Finding, Listening, NovaReport
from pinner.model.reading import HostReading
from pinner.model.snapshot import Snapshot
from pinner.planning.questions import nova_check
from pinner.service.hosts.checker import HostChecker

CODES = ("floating-guest-on-isolated", "nova-guest-outside-shared", "nova-shared-isolated")
"""Of findings about Nova's guests and sets that are no conflict in Nova's own eyes."""


def nova_report(snapshot: Snapshot, listening: Listening) -> NovaReport:
    """With what `pinner check` calls critical on the same host."""
    report = nova_check.report(snapshot, listening)
    return replace(report, findings=(*report.findings, *_critical(snapshot)))


def _critical(snapshot: Snapshot) -> Iterator[Finding]:
    novas = {guest.name for guest in snapshot.guests if guest.nova}
    for each in HostChecker().check(HostReading(snapshot)).findings:
        of_guest = each.subject.kind == "guest"
        if each.severity == "critical" and each.code in CODES and (not of_guest or each.subject.name in novas):
            lines = [(remedy.line, remedy.where) for remedy in each.remedies] or [("", "")]
            for line, where in lines[:1] if of_guest else lines:
                option = line.partition(" ")[0].lstrip("#") or "cpu_shared_set"
                yield Finding(str(each.subject) if of_guest else option, each.message, line, where)
