"""pinner blame: who delays a guest."""

from argparse import Namespace
from typing import TYPE_CHECKING

from pinner.cli.frame.context import CommandContext, pick_host
from pinner.cli.frame.options import host_option
from pinner.cli.frame.output import Table, cells, table
from pinner.cli.frame.parser import Commands, add_command
from pinner.cli.frame.pictures import require_svg, show
from pinner.cli.frame.values import path, trace_seconds
from pinner.render import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pinner.model.outcome.blame import Blame

_BAR = 20


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "blame",
        blame,
        "name the threads that delay a guest",
        about="The kernel traces the scheduler (tracefs). The command shows which threads ran\n"
        "while the guest's threads waited for a CPU, with their share of the waiting.\n"
        "A guest whose threads never wait has no such threads.",
        examples=["pinner blame web1", "pinner blame web1 --seconds 20 --json", "pinner blame web1 -o blame.svg"],
    )
    parser.add_argument("guest", metavar="GUEST", help="the guest's name or UUID")
    host_option(parser)
    parser.add_argument(
        "--seconds",
        metavar="SECONDS",
        type=trace_seconds,
        default=5.0,
        help="the length of the trace, up to 60 s (default: %(default)s)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", type=path, help="also draw the table: a file .svg")


def blame(context: CommandContext, arguments: Namespace) -> int:
    require_svg(arguments.output)
    with context.open() as pinner:
        host = pick_host(pinner, arguments.host)
        with context.measuring(arguments.seconds):
            answer = pinner.blame(host, arguments.guest, arguments.seconds)
    show(context, answer, _parts, arguments.output, f"{host}: who delays guest {answer.guest}")
    return 0


def _parts(blame: "Blame") -> "list[RenderableType]":
    waited = ", ".join(f"{wait.role} {wait.ms:.1f} ms" for wait in blame.waited)
    parts: list[RenderableType] = [visible(f"guest {blame.guest} waited in {blame.seconds:.1f} s: {waited or 'never'}")]
    if blame.lost:
        parts.append(f"The kernel lost {blame.lost} events: the true figures are higher. Trace for a shorter time.")
    return [*parts, _culprits(blame)] if blame.culprits else parts


def _culprits(blame: "Blame") -> Table:
    drawn = table("SHARE", "", "WAITED", "THREAD", "ID", "PROCESS", "OF", right=("SHARE", "WAITED", "ID", "PROCESS"))
    for culprit in blame.culprits:
        share, bar = f"{100 * culprit.share:.0f} %", "█" * round(culprit.share * _BAR)
        owner = f"guest {culprit.guest}" if culprit.guest else culprit.unit
        has_ended = " (has ended)" if culprit.tid and not culprit.pid else ""
        name = f"{culprit.name or 'a thread'}{has_ended}"
        drawn.add_row(*cells(share, bar, f"{culprit.ms:.1f} ms", name, culprit.tid, culprit.pid or "-", owner))
    return drawn
