"""pinner nova check | install-hooks | remove-hooks."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pinner import codec
from pinner.cli.frame.context import CommandContext, agreed, pick_host, require_answer
from pinner.cli.frame.options import captured, source_options
from pinner.cli.frame.output import Table, cpu_cell, print_json, print_line, table
from pinner.cli.frame.parser import Commands, add_command, add_noun
from pinner.cli.frame.values import path
from pinner.render import visible

if TYPE_CHECKING:
    from pinner.model.guest.nova import Finding, NovaReport

ABOUT = """\
The command finds CPU sets that overlap, CPU sets that lack the CPUs of a
pinned guest, notifications that do not reach pinner, and services that move
threads which pinner has placed. It prints the line to change for each of them,
and changes nothing itself. It reads the files that nova-compute's process
reads. [nova] nova_conf in the host's pinner.conf names other files."""

STATUS = {0: "nothing is misconfigured", 1: "something is misconfigured, or the command failed"}


def register(commands: Commands) -> None:
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
    _add(verbs, "install-hooks", _install, "install pinner's hook script for the libvirt of this host", _INSTALL)
    _add(verbs, "remove-hooks", _remove, "remove pinner's hook script for the libvirt of this host", _REMOVE)


def check_nova(context: CommandContext, arguments: Namespace) -> int:
    # Imported here for the same reason as in context.open_pinner.
    from pinner import wiring
    from pinner.service.hosts.checker import nova_report

    snapshot = captured(context, arguments)
    if snapshot is None:
        with context.open() as pinner:
            snapshot = pinner.observe(pick_host(pinner, arguments.host), 0)
    report = nova_report(snapshot, wiring.listening(context.config_files))
    if context.json:
        print_json(codec.plain(report))
    else:
        _print(context, report)
    return 1 if report.findings else 0


def _print(context: CommandContext, report: "NovaReport") -> None:
    context.show(owners(report), "")
    if not report.findings:
        context.show("nothing is misconfigured")
        return
    context.show(findings(report.findings), "\nto change:")
    for finding in report.findings:
        # One line each, so that the line can be copied.
        if finding.remedy:
            context.out.print(visible(f"  {finding.where or 'as root'}: {finding.remedy}"), soft_wrap=True)


def owners(report: "NovaReport") -> Table:
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
            drawn.add_row(owner, cpu_cell(cpus), why)
    return drawn


def findings(shown: tuple["Finding", ...]) -> Table:
    drawn = table("FINDING", "WHY", whole=("FINDING",))
    for finding in shown:
        drawn.add_row(finding.what, finding.why)
    return drawn


_INSTALL = """\
libvirt runs the script for each guest. When a guest migrates to this host, the
script removes the pins that pinner has made on the source. When a guest
starts, the script reports it to pinner. It always succeeds: a guest starts and
migrates whether pinner runs or not.

The command needs root. It writes, below /etc/libvirt/hooks, qemu.d/pinner (or
qemu, where libvirt is older than 6.5.0) and pinner-strip-pins, and
/etc/pinner/hook.conf where there is none. It never overwrites a script that is
not pinner's. A second call changes nothing, except that it updates the files
of an older version. For the libvirt of the snap openstack-hypervisor, the
folder is /var/snap/openstack-hypervisor/common/etc/libvirt/hooks."""

_REMOVE = """\
The command needs root. It removes the files of install-hooks. It keeps
hook.conf if the file was changed, and the scripts of others."""

_HOOKS_STATUS = {2: "not root, a script is in the way, bad input, or needs --yes"}


def _add(verbs: Commands, name: str, run: Callable[[CommandContext, Namespace], int], summary: str, about: str) -> None:
    parser = add_command(
        verbs,
        name,
        run,
        summary,
        about=about,
        status=_HOOKS_STATUS,
        asks=True,
        examples=[f"pinner nova {name} --dry-run", f"pinner nova {name} --yes"],
    )
    parser.add_argument("--dry-run", action="store_true", help="show the steps, and change nothing")
    parser.add_argument(
        "--root",
        metavar="DIR",
        type=path,
        default=Path("/"),
        help="use the file system below DIR, such as an image (default: /)",
    )
    parser.add_argument(
        "--hooks",
        metavar="DIR",
        type=path,
        help="libvirt's folder of hook scripts, if it is another one, such as /usr/local/etc/libvirt/hooks or the "
        "folder that a container mounts (default: etc/libvirt/hooks below --root, or the folder of the snap "
        "openstack-hypervisor)",
    )


def _install(context: CommandContext, arguments: Namespace) -> int:
    # Imported here for the same reason as in context.open_pinner.
    from pinner.hostsetup.hooks import install_hooks

    return _do(context, arguments, install_hooks, "Install pinner's hook script")


def _remove(context: CommandContext, arguments: Namespace) -> int:
    from pinner.hostsetup.hooks import remove_hooks

    return _do(context, arguments, remove_hooks, "Remove pinner's hook script")


def _do(context: CommandContext, arguments: Namespace, change: Callable[..., None], question: str) -> int:
    from pinner.hostsetup.hooks import HookPaths

    folder = arguments.hooks.absolute() if arguments.hooks else None
    paths = HookPaths(arguments.root.absolute(), folder)
    if not arguments.dry_run:
        require_answer(yes=arguments.yes)
        if not agreed(f"{question} in {paths.hooks}?", yes=arguments.yes):
            return 0
    said: list[str] = []
    change(paths, said.append if context.json else print_line, dry_run=arguments.dry_run)
    if context.json:
        print_json({"steps": said})
    return 0
