"""pinner inventory: show a host, and save its snapshot; pinner capture: save this machine as files, for support."""

import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from pinner import codec, whole_file
from pinner.cli.commands.host import guests, hosts, processes
from pinner.cli.frame.context import CommandContext, pick_host, reason
from pinner.cli.frame.options import BUSY_THRESHOLD, OBSERVE_SECONDS, host_option, require_no_sample, sample_option
from pinner.cli.frame.output import print_json
from pinner.cli.frame.parser import Commands, add_command
from pinner.cli.frame.values import path
from pinner.model.errors import Invalid
from pinner.render import counted

if TYPE_CHECKING:
    from pinner.model.snapshot import Snapshot

SAVE_SECONDS = 5.0
"""The sample of a saved snapshot is as long as that of a plan, because plans are made from it."""


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "inventory",
        inventory,
        "show a host, or save its snapshot to make plans from later",
        about="The command shows the host's CPUs, NUMA nodes, guests and busy processes. With\n"
        "--save, it writes all data that a plan is made from to one file, for `pinner\n"
        "plan --snapshot`. The file contains the command lines of all processes.\n\n"
        "Where libvirt does not answer, the command warns, and shows CPUs, NUMA nodes\n"
        "and devices only; --json then prints `host` and `topology`, and --save fails.",
        examples=[
            "pinner inventory",
            "pinner inventory --save host.json && pinner plan --snapshot host.json",
            "pinner inventory --root captured/ --save - > captured.json",
        ],
    )
    host_option(parser)
    parser.add_argument(
        "--root",
        metavar="DIR",
        type=path,
        help="read the captured machine in this directory, which contains proc/ and sys/ (see `pinner capture`)",
    )
    parser.add_argument(
        "--save",
        metavar="FILE",
        help="write the snapshot as JSON to FILE, readable by its owner only; - writes to stdout instead of tables",
    )
    sample_option(parser, f"{OBSERVE_SECONDS:g}; with --save {SAVE_SECONDS:g}; with --root 0")


def inventory(context: CommandContext, arguments: Namespace) -> int:
    require_no_sample(arguments)
    with context.open(arguments.root) as pinner:
        span = _span(arguments)
        host = pick_host(pinner, arguments.host)
        with context.measuring(span):
            # A saved snapshot without guests would give wrong plans.
            host_now = hosts.observe(pinner, host, span, complete=arguments.save is not None)
    for warning in host_now.warnings:
        context.warn(warning)
    snapshot = host_now.snapshot
    if snapshot is None:
        hosts.show_topology(context, host_now)
        return 0
    if arguments.save == "-":
        sys.stdout.write(codec.dump(snapshot).decode() + "\n")
        return 0
    if arguments.save is not None:
        save(codec.dump(snapshot) + b"\n", Path(arguments.save))
        context.inform(f"saved to {arguments.save}")
    if context.json:
        print_json(codec.plain(snapshot))
    else:
        show(context, host_now, snapshot)
    return 0


def _span(arguments: Namespace) -> float:
    if arguments.sample_seconds is not None:
        return float(arguments.sample_seconds)
    if arguments.root is not None:
        return 0.0
    return OBSERVE_SECONDS if arguments.save is None else SAVE_SECONDS


def save(text: bytes, file: Path) -> None:
    """Write the file completely or not at all, for its owner only: it has every command line of the host. Raises
    Invalid for a device or a symlink."""
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise Invalid("--save", str(file), "a new or a regular file, or - for stdout; another kind of file is there")
    try:
        whole_file.replace(file, text)
    except OSError as error:
        raise Invalid("--save", str(file), f"a file that can be written ({reason(error)})") from None


def show(context: CommandContext, host_now: hosts.HostNow, snapshot: "Snapshot") -> None:
    context.show(hosts.summary(host_now), "")
    hosts.show_nodes(context, snapshot.topology)
    context.show("")
    if snapshot.guests:
        context.show(guests.guests(snapshot.guests))
    else:
        context.show("no active guests")
    context.show("")
    if not snapshot.sample_seconds:
        context.show(f"{len(snapshot.processes)} processes, CPU use not measured")
        return
    busy = processes.busiest(snapshot.processes, BUSY_THRESHOLD)
    span = f"{snapshot.sample_seconds:g} s"
    context.show(f"{len(snapshot.processes)} processes, {len(busy)} above {BUSY_THRESHOLD:g} % of one CPU over {span}")
    if busy:
        context.show("", processes.processes(busy))


def register_capture(commands: Commands) -> None:
    parser = add_command(
        commands,
        "capture",
        capture,
        "save this machine as files, to inspect it and plan for it on another machine",
        about="The command saves the files of /proc and /sys that `pinner inventory` reads,\n"
        "and the parts of the guests' libvirt XML that concern CPUs, memory and devices;\n"
        "no passwords, no disks. It also saves two samples of the counters that `pinner\n"
        "check` compares, 2 s apart. Where libvirt does not answer, it warns, and saves\n"
        "the machine without guests. Every command with the option --root reads such a\n"
        "directory.",
        examples=[
            "pinner capture web1 && pinner plan --root web1",
            "pinner capture web1 --scrub && pinner inventory --root web1",
        ],
    )
    parser.add_argument("folder", metavar="DIR", type=path, help="directory to create; it must be new or empty")
    parser.add_argument("--root", metavar="ROOT", type=path, help="save the captured machine in ROOT, not this machine")
    parser.add_argument(
        "--scrub",
        action="store_true",
        help="omit private data: command lines, names of processes, guests, units, taps and mounts, UUIDs, and the "
        "values of kernel arguments that do not concern CPUs",
    )


def capture(context: CommandContext, arguments: Namespace) -> int:
    if context.url:
        raise Invalid("--url", context.url, "no --url and no PINNER_URL: capture works on this machine only")
    # Imported here for the same reason as in context.open_pinner.
    from pinner import wiring

    saved = wiring.save_machine(context.config_files, arguments.root, arguments.folder, scrub=arguments.scrub)
    if saved.missing:
        context.warn(saved.missing)
    if context.json:
        print_json({"folder": str(arguments.folder), "files": saved.files, "guests": saved.guests})
    context.inform(f"saved {saved.files} files and {counted(saved.guests, 'guest')} in {arguments.folder}")
    return 0
