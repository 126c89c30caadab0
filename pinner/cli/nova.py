"""pinner nova check."""

from argparse import Namespace

from rich.table import Table

from pinner import codec
from pinner.cli.context import Context, pick_host
from pinner.cli.options import captured, source_options
from pinner.cli.output import cells, cpu_cell, print_json, table
from pinner.cli.parser import Commands, add_command, add_noun
from pinner.model.nova_report import Finding, NovaReport
from pinner.render import visible

ABOUT = """\
Shows which CPUs Nova owns on the host, which pinner may use, and what is misconfigured, each with the line to change:
CPU sets that overlap or lack a pinned guest's CPUs, notifications that never reach pinner, services that move what
pinner places. Nova's configuration is read from [nova] nova_conf of the host's pinner.conf. Nothing is changed.
Exit status: 0 nothing is misconfigured, 1 something is, 2 bad input."""


def register(commands: Commands) -> None:
    """Add the noun."""
    verbs = add_noun(commands, "nova", "check how a host's Nova and pinner fit together")
    check = add_command(
        verbs,
        "check",
        check_nova,
        "show what Nova owns on a host, what pinner may use, and what is misconfigured",
        about=ABOUT,
        examples=["pinner nova check", "pinner nova check --json", "pinner nova check --snapshot host.json"],
    )
    source_options(check)


def check_nova(context: Context, arguments: Namespace) -> int:
    """Print the report; the exit status tells whether something is misconfigured."""
    # Imported here for the same reason as in context.open_pinner.
    from pinner import wiring
    from pinner.service import offline

    snapshot = captured(context, arguments)
    if snapshot is None:
        with context.open() as pinner:
            snapshot = pinner.observe(pick_host(pinner, arguments.host), 0)
    report = offline.nova_report(snapshot, wiring.listening(context.config_files))
    if context.json:
        print_json(codec.plain(report))
    else:
        _print(context, report)
    return 1 if report.findings else 0


def _print(context: Context, report: NovaReport) -> None:
    context.out.print(owners(report))
    context.out.print()
    if not report.findings:
        context.out.print("nothing is misconfigured")
        return
    context.out.print(findings(report.findings))
    context.out.print("\nto change:")
    for each in report.findings:
        # In one line each, to be copied.
        context.out.print(visible(f"  {each.where or 'as root'}: {each.remedy}"), soft_wrap=True)


def owners(report: NovaReport) -> Table:
    """Who may use which CPUs."""
    drawn = table("WHOSE", "CPUS", "WHY")
    said = ", ".join(report.files) or "pinner.conf"
    for whose, cpus, why in (
        ("Nova", report.dedicated, f"cpu_dedicated_set ({said})"),
        *(("Nova", guest.cpus, f"dedicated to guest {guest.name}") for guest in report.guests),
        ("Nova", report.unused, "offline: Nova may have powered them down; nobody uses them"),
        ("pinner", report.for_vcpus, "for vCPUs" + (" (in cpu_shared_set)" if report.shared else "")),
        ("pinner", report.for_others, "for busy processes and emulator threads"),
    ):
        if cpus:
            drawn.add_row(*cells(whose, cpu_cell(cpus), why))
    return drawn


def findings(found: tuple[Finding, ...]) -> Table:
    """What is misconfigured, and why."""
    drawn = table("WHAT", "WHY", whole=("WHAT",))
    for each in found:
        drawn.add_row(*cells(each.what, each.why))
    return drawn
