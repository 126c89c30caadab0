"""pinner capture: this machine as a folder of files, for support and for tests."""

from argparse import Namespace
from pathlib import Path

from pinner.cli.context import Context
from pinner.cli.parser import Commands, add_command
from pinner.model.errors import Invalid


def register(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(
        commands,
        "capture",
        capture,
        "save this machine as files, to look at it and plan for it elsewhere",
        about="Saves the files of /proc and /sys that an inventory reads; guests, which libvirt knows, are not among\n"
        "them. Every command that takes --root reads the folder.",
        examples=[
            "pinner capture web1 && pinner plan --root web1",
            "pinner capture web1 --scrub && pinner inventory --root web1",
        ],
    )
    parser.add_argument("folder", metavar="DIR", type=Path, help="a folder to make")
    parser.add_argument("--root", metavar="ROOT", type=Path, help="save the captured machine in ROOT, not this one")
    parser.add_argument(
        "--scrub",
        action="store_true",
        help="leave out what tells who runs what: names and command lines of processes, units, taps, mounts, and the "
        "values of kernel arguments that have nothing to do with CPUs",
    )


def capture(context: Context, arguments: Namespace) -> int:
    """Save the machine, and say how large it is."""
    if context.url:
        raise Invalid("--url", context.url, "absent: only the machine at hand can be captured")
    # Imported here for the same reason as in context.open_pinner.
    from pinner.service import offline

    count = offline.save_machine(arguments.root, arguments.folder, scrub=arguments.scrub)
    context.note(f"saved {count} files in {arguments.folder}")
    return 0
