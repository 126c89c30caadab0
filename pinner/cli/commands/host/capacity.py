"""pinner capacity: how many more guests of one shape fit a host, by planning them."""

from argparse import Namespace
from typing import TYPE_CHECKING

from pinner import codec
from pinner.cli.frame.context import CommandContext, pick_host
from pinner.cli.frame.options import captured, given, make_request, request_options, source_options
from pinner.cli.frame.output import cells, facts, kib, print_json, table
from pinner.cli.frame.parser import Commands, Options, add_command
from pinner.cli.frame.values import memory, vcpus
from pinner.model.errors import Invalid
from pinner.model.questions.whatif import GuestShape

if TYPE_CHECKING:
    from pinner.model.questions.capacity import Capacity

ABOUT = """\
The number is exact: pinner plans so many guests of this size beside the
present ones, and finds no place for one more. By strategy: that of the host,
and those that a flavor may ask for. A host is planned by its policy, a
captured machine by the plan options. Nothing is stored or changed."""


def register(commands: Commands) -> None:
    parser = add_command(
        commands,
        "capacity",
        show_shape_rooms,
        "show how many more guests of one size fit a host, exactly",
        about=ABOUT,
        examples=[
            "pinner capacity --vcpus 8 --memory 16G",
            "pinner capacity --vcpus 8 --memory 16G --huge-pages 1G",
            "pinner capacity --vcpus 4 --snapshot host.json --strategy isolated",
        ],
    )
    shape_options(parser)
    source_options(parser)
    request_options(parser)


def shape_options(to: Options) -> None:
    to.add_argument("--vcpus", metavar="N", type=vcpus, required=True, help="the number of vCPUs of each guest")
    to.add_argument(
        "--memory",
        metavar="SIZE",
        type=memory,
        default=0,
        help="the memory of each guest, such as 512M or 16G (default: memory does not count)",
    )
    to.add_argument(
        "--huge-pages",
        metavar="SIZE",
        type=memory,
        default=0,
        help="the size of the huge pages of this memory, such as 2M or 1G (default: normal pages)",
    )


def show_shape_rooms(context: CommandContext, arguments: Namespace) -> int:
    if arguments.huge_pages and not arguments.memory:
        raise Invalid("--huge-pages", kib(arguments.huge_pages), "an option beside --memory, whose pages these are")
    shape = GuestShape(arguments.vcpus, arguments.memory, arguments.huge_pages)
    found = _capacity(context, arguments, shape)
    if context.json:
        print_json(codec.plain(found))
        return 0
    pages = f" in pages of {kib(shape.page_kib)}" if shape.page_kib else ""
    size = f"{shape.vcpus} vCPUs, {kib(shape.memory_kib) + pages if shape.memory_kib else 'any memory'}"
    context.show(facts(("host", found.host), ("strategy", found.strategy), ("guests of", size)))
    context.show("")
    drawn = table("STRATEGY", "MORE GUESTS", "WHY NOT ONE MORE", right=("MORE GUESTS",), whole=("STRATEGY",))
    for room in found.fitting:
        drawn.add_row(*cells(room.strategy, room.guests, room.why))
    context.show(drawn)
    return 0


def _capacity(context: CommandContext, arguments: Namespace, shape: GuestShape) -> "Capacity":
    if (snapshot := captured(context, arguments)) is not None:
        # Imported here, because the planner takes longer than the other imports of a command.
        from pinner.service.hosts.offline import capacity_from_snapshot

        return capacity_from_snapshot(snapshot, make_request(arguments), shape)
    if options := given(arguments):
        raise Invalid(f"--{options[0].replace('_', '-')}", "", "--snapshot or --root; a host is planned by its policy")
    with context.open() as pinner:
        return pinner.capacity(pick_host(pinner, arguments.host), shape.vcpus, shape)
