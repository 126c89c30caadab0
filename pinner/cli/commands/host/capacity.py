"""pinner host capacity."""

from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pinner import codec
from pinner.cli.frame.context import CommandContext, pick_host
from pinner.cli.frame.output import cells, cpu_cell, facts, print_json, table
from pinner.cli.frame.tables import Cell, Table
from pinner.cli.frame.values import vcpus
from pinner.cli.parser import Commands, add_command

if TYPE_CHECKING:
    from pinner.model.questions.capacity import Capacity, StrategyCapacity

_FREE = "FREE VCPUS"


def register(verbs: Commands) -> None:
    """Add the command to the noun host."""
    parser = add_command(
        verbs,
        "capacity",
        show_capacity,
        "show how many more guests fit a host",
        about="By strategy, NUMA node and number of vCPUs. The guests fit beside the\n"
        "present ones: no vCPU would share a CPU, and no placed guest would move.",
        examples=["pinner host capacity", "pinner host capacity compute1 --vcpus 4 --json"],
    )
    parser.add_argument("host", metavar="HOST", nargs="?", help="the host's name (default: the only host)")
    parser.add_argument("--vcpus", metavar="N", type=vcpus, help="only guests of N vCPUs (default: 1, 2, 4 and so on)")


def show_capacity(context: CommandContext, arguments: Namespace) -> int:
    """Print the room of a host."""
    with context.open() as pinner:
        found = pinner.capacity(pick_host(pinner, arguments.host), arguments.vcpus)
    if context.json:
        print_json(codec.plain(found))
        return 0
    rows = (("host", found.host), ("strategy", found.strategy), ("policy", found.mode or "none"))
    context.show(facts(*rows))
    context.show("")
    context.show(rooms(found))
    for each in found.strategies:
        if each.why:
            context.out.print(*cells(f"{each.strategy}: no guest can be placed: {each.why}"), soft_wrap=True)
    return 0


def rooms(found: "Capacity") -> Table:
    """The number of guests of each size, a row for each strategy and node."""
    sizes = sorted({size for each in found.strategies for size in each.guests})
    of_size = [f"{size} VCPU{'S' if size > 1 else ''}" for size in sizes]
    drawn = table("STRATEGY", "NODE", "CPUS", _FREE, *of_size, right=(_FREE, *of_size), whole=("STRATEGY", "CPUS"))
    for each in found.strategies:
        for row in _rows(each, sizes):
            drawn.add_row(*row)
    return drawn


def _rows(each: "StrategyCapacity", sizes: list[int]) -> Iterator[list[Cell]]:
    for node in each.nodes:
        name = "unknown" if node.node is None else node.node
        numbers = (node.guests[size] for size in sizes)
        yield cells(each.strategy, name, cpu_cell(node.cpus or "no CPUs"), node.free_vcpus, *numbers)
    yield cells(each.strategy, "all", "", each.free_vcpus, *(each.guests[size] for size in sizes))
