"""pinner capture: save this machine as a directory of files, for support and for tests."""

from argparse import Namespace

from pinner.cli.frame.context import CommandContext
from pinner.cli.frame.output import print_json
from pinner.cli.frame.parser import Commands, add_command
from pinner.cli.frame.values import path
from pinner.model.errors import Invalid
from pinner.render import counted


def register(commands: Commands) -> None:
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
    context.note(f"saved {saved.files} files and {counted(saved.guests, 'guest')} in {arguments.folder}")
    return 0
