"""pinner process list, and the table of processes."""

from argparse import Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pinner.cli.frame.context import CommandContext, pick_host
from pinner.cli.frame.options import BUSY_THRESHOLD, OBSERVE_SECONDS, host_option, sample_option
from pinner.cli.frame.output import Table, cpu_cell, cut, masks, print_items, table
from pinner.cli.frame.parser import Commands, add_command, add_noun
from pinner.cli.frame.values import percent
from pinner.model.errors import Invalid
from pinner.render import counted

if TYPE_CHECKING:
    from pinner.model.machine.process import Immovable, Process

MOVABLE: dict["Immovable", str] = {
    "": "yes",
    "per-cpu": "no: bound to its CPU",
    "guest": "no: placed with its guest",
    "pinner": "no: pinner itself",
    "restricted": "no: restricted by its owner",
    "not-permitted": "no: needs CAP_SYS_NICE",
}


def register(commands: Commands) -> None:
    verbs = add_noun(commands, "process", "list the processes of a host")
    parser = add_command(
        verbs,
        "list",
        list_processes,
        "list processes with CPU use and affinity, and whether pinner may move them",
        about="CPU use is in per cent of one CPU, for all threads of a process together, over\n"
        "the time between two samples. A process is restricted by its owner if its\n"
        "affinity was limited on purpose; pinner moves such a process only if a plan\n"
        "names it with --process.",
        examples=["pinner process list --busy", "pinner process list --busy --threshold 10 --sample-seconds 5"],
    )
    parser.add_argument("--busy", action="store_true", help="list only busy processes")
    parser.add_argument(
        "--threshold",
        metavar="PERCENT",
        type=percent,
        help=f"with --busy: a process above PERCENT per cent of one CPU is busy (default: {BUSY_THRESHOLD})",
    )
    sample_option(parser, f"{OBSERVE_SECONDS:g}")
    host_option(parser)


def list_processes(context: CommandContext, arguments: Namespace) -> int:
    if arguments.threshold is not None and not arguments.busy:
        raise Invalid("--threshold", f"{arguments.threshold:g}", "an option beside --busy")
    threshold = BUSY_THRESHOLD if arguments.threshold is None else arguments.threshold
    span = OBSERVE_SECONDS if arguments.sample_seconds is None else arguments.sample_seconds
    with context.open() as pinner, context.measuring(span):
        snapshot = pinner.observe(pick_host(pinner, arguments.host), span)
    shown = busiest(snapshot.processes, threshold) if arguments.busy else busiest(snapshot.processes)
    if context.json:
        print_items(shown)
        return 0
    context.show(processes(shown))
    return 0


def busiest(processes: Iterable["Process"], threshold: float = -1.0) -> list["Process"]:
    """``threshold`` is in per cent of one CPU."""
    return sorted((p for p in processes if p.load > threshold), key=lambda p: (-p.load, p.pid))


def processes(shown: Iterable["Process"]) -> Table:
    numbers = ("PID", "CPU %", "THREADS")
    headers = (*numbers, "AFFINITY", "MOVABLE", "UNIT", "COMMAND")
    drawn = table(*headers, right=numbers, whole=(*numbers, "AFFINITY"))
    for p in shown:
        drawn.add_row(
            p.pid,
            f"{p.load:.1f}",
            len(p.threads),
            cpu_cell(masks(thread.affinity for thread in p.threads)),
            _movable(p),
            cut(p.unit or "-"),
            cut(f"[{p.name}]" if p.kernel else p.command or p.name),
        )
    return drawn


def _movable(process: "Process") -> str:
    immovable = sum(1 for thread in process.threads if thread.immovable_reason)
    if process.immovable_reason or not immovable:
        return MOVABLE[process.immovable_reason]
    return f"yes, except {counted(immovable, 'thread')}"
