"""pinner check: show what hurts the guests of a host."""

import sys
import textwrap
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pinner import codec
from pinner.cli.frame.context import CommandContext, pick_host
from pinner.cli.frame.options import require_no_sample, sample_option, source_options
from pinner.cli.frame.output import print_json
from pinner.cli.frame.parser import Commands, add_command
from pinner.model.errors import PinnerError
from pinner.model.outcome.check import RANKS
from pinner.render import counted, visible

if TYPE_CHECKING:
    from pinner.model.outcome.check import CheckFinding, CheckReport, HostState, Needs

SAMPLE_SECONDS = 2.0
MONITOR: dict["HostState", int] = {"ok": 0, "warning": 1, "critical": 2, "unknown": 0}
"""The exit status with --monitor. A finding that is not known does not raise it."""
UNKNOWN = 3
"""The exit status of a monitoring plug-in that could not check at all."""
_NEEDS: dict["Needs", str] = {
    "nothing": "",
    "reboot": " (needs a restart of the host)",
    "guest restart": " (needs a restart of the guest)",
    "guest owner": " (by the owner of the guest)",
}
STATUS = {
    0: "done; with --monitor: no warning",
    1: "failed; with --monitor: a warning",
    2: "bad input; with --monitor: something critical",
    UNKNOWN: "with --monitor: the host could not be checked",
}


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "check",
        check,
        "show what hurts the guests of a host, with the evidence and the remedy",
        about="The command samples the counters of the host twice, and looks for lost packets,\n"
        "interrupts and other work on CPUs of guests, waiting vCPUs, and settings that\n"
        "cost time. It changes nothing. docs/checks.md lists all codes.\n\n"
        "A snapshot has no counters, and a machine captured by other programs has one\n"
        "sample of them: checks of growing counters find nothing there.",
        status=STATUS,
        examples=["pinner check", "pinner check --sample-seconds 30 --json", "pinner check --root captured/"],
    )
    source_options(parser)
    sample_option(parser, f"{SAMPLE_SECONDS:g}")
    parser.add_argument(
        "--monitor",
        action="store_true",
        help="print one line with performance data, and exit with the status of a monitoring plug-in",
    )


def check(context: CommandContext, arguments: Namespace) -> int:
    try:
        report = _report(context, arguments)
    except PinnerError as error:
        if not arguments.monitor:
            raise
        sys.stdout.write(f"PINNER UNKNOWN - {visible(str(error))}\n")
        return UNKNOWN
    if context.json:
        print_json(codec.plain(report))
    elif arguments.monitor:
        sys.stdout.write(monitor_line(report) + "\n")
    else:
        for line in lines(report, context.out.width):
            context.out.print(line, soft_wrap=True)
    return MONITOR[report.state] if arguments.monitor else 0


def _report(context: CommandContext, arguments: Namespace) -> "CheckReport":
    require_no_sample(arguments)
    if arguments.snapshot is not None:
        # Imported here for the same reason as in context.open_pinner.
        from pinner.cli.frame.options import read_snapshot
        from pinner.model.reading import HostReading
        from pinner.service.hosts.checker import HostChecker

        return HostChecker().check(HostReading(read_snapshot(arguments.snapshot)))
    seconds = SAMPLE_SECONDS if arguments.sample_seconds is None else arguments.sample_seconds
    root: Path | None = arguments.root
    with context.open(root) as pinner, context.measuring(0 if root else seconds):
        return pinner.findings(pick_host(pinner, arguments.host), seconds)


def monitor_line(report: "CheckReport") -> str:
    counts = Counter(finding.severity for finding in report.findings)
    worst = ", ".join(
        f"{finding.code} ({finding.subject})" for finding in report.findings[:3] if finding.severity != "unknown"
    )
    data = " ".join(f"{severity}={counts[severity]}" for severity in RANKS)
    state = "OK" if report.state == "unknown" else report.state.upper()
    text = worst or f"{report.checks} checks found nothing"
    # A bar would end the text, and begin the performance data.
    return visible(f"PINNER {state} - {report.host}: {text}".replace("|", "/")) + f" | {data} checks={report.checks}"


def lines(report: "CheckReport", width: int) -> Iterator[str]:
    span = f"over {report.sample_seconds:.3g} s" if report.sample_seconds else "without a second sample"
    for finding in report.findings:
        yield from _lines(finding, width)
        yield ""
    yield visible(f"{report.host}: {counted(len(report.findings), 'finding')} of {report.checks} checks {span}")


def _lines(finding: "CheckFinding", width: int) -> Iterator[str]:
    yield from _wrapped(f"{finding.severity.upper()} {finding.code}: {finding.message}", width)
    if finding.severity == "unknown":
        return
    yield from _wrapped(f"  evidence: {', '.join(map(str, finding.evidence))}", width)
    yield from _wrapped(f"  why: {finding.why} ({finding.source})", width)
    if finding.is_fixable:
        yield visible(f"  with pinner: pinner plan --fix {finding.code}")
    for remedy in finding.remedies:
        # In one line, so that it can be copied.
        yield visible(f"  {remedy.where}{_NEEDS[remedy.needs]}: {remedy.line}")


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(visible(text), width, subsequent_indent="    ", break_on_hyphens=False)
