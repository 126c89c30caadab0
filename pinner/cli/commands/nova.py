"""pinner nova check; install-hooks and remove-hooks are in nova_hooks.py."""

from argparse import Namespace
from typing import TYPE_CHECKING

from pinner import codec
from pinner.cli.commands import nova_hooks
from pinner.cli.frame.context import CommandContext, pick_host
from pinner.cli.frame.options import captured, source_options
from pinner.cli.frame.output import cells, cpu_cell, print_json, table
from pinner.cli.frame.tables import Table
from pinner.cli.parser import Commands, add_command, add_noun
from pinner.render import visible

if TYPE_CHECKING:
    from pinner.model.guest.nova_report import Finding, NovaReport

ABOUT = """\
The command finds CPU sets that overlap, CPU sets that lack the CPUs of a
pinned guest, notifications that do not reach pinner, and services that move
threads which pinner has placed. It prints the line to change for each of them,
and changes nothing itself. It reads the files that nova-compute's process
reads. [nova] nova_conf in the host's pinner.conf names other files."""

STATUS = {0: "nothing is misconfigured", 1: "something is misconfigured, or the command failed"}


def register(commands: Commands) -> None:
    """Add the noun."""
    verbs = add_noun(commands, "nova", "check a host's configuration of Nova and pinner; libvirt's hook script")
    check = add_command(
        verbs,
        "check",
        check_nova,
        "show the CPUs of Nova and of pinner on a host, and misconfigured settings",
        about=ABOUT,
        status=STATUS,
        examples=["pinner nova check", "pinner nova check --json", "pinner nova check --snapshot host.json"],
    )
    source_options(check)
    nova_hooks.register(verbs)


def check_nova(context: CommandContext, arguments: Namespace) -> int:
    """Print the report; the exit status is 1 if something is misconfigured."""
    # Imported here for the same reason as in context.open_pinner.
    from pinner import wiring
    from pinner.service.hosts import offline

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


def _print(context: CommandContext, report: "NovaReport") -> None:
    context.show(owners(report))
    context.show("")
    if not report.findings:
        context.show("nothing is misconfigured")
        return
    context.show(findings(report.findings))
    context.show("\nto change:")
    for each in report.findings:
        # One line each, so that the line can be copied.
        context.out.print(visible(f"  {each.where or 'as root'}: {each.remedy}"), soft_wrap=True)


def owners(report: "NovaReport") -> Table:
    """The owner of each CPU set, and the reason."""
    drawn = table("OWNER", "CPUS", "WHY")
    source = "; ".join(filter(None, (", ".join(report.files), report.source))) or "pinner.conf"
    for owner, cpus, why in (
        ("Nova", report.dedicated, f"cpu_dedicated_set ({source})"),
        *(("Nova", guest.cpus, f"dedicated to guest {guest.name}") for guest in report.guests),
        ("Nova", report.unused, "offline: Nova may have powered them down; pinner does not use them"),
        ("pinner", report.for_vcpus, "for vCPUs" + (" (in cpu_shared_set)" if report.shared else "")),
        ("pinner", report.for_others, "for busy processes and emulator threads"),
    ):
        if cpus:
            drawn.add_row(*cells(owner, cpu_cell(cpus), why))
    return drawn


def findings(found: tuple["Finding", ...]) -> Table:
    """The misconfigured settings and services, each with the reason."""
    drawn = table("FINDING", "WHY", whole=("FINDING",))
    for each in found:
        drawn.add_row(*cells(each.what, each.why))
    return drawn
