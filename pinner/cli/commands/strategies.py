"""pinner strategy list."""

from argparse import Namespace

from pinner.cli.frame.context import CommandContext
from pinner.cli.frame.output import cells, print_items, table
from pinner.cli.frame.parser import Commands, add_command, add_noun


def register(commands: Commands) -> None:
    verbs = add_noun(commands, "strategy", "list the strategies for plans")
    add_command(
        verbs,
        "list",
        list_strategies,
        "list the installed strategies and their parameters",
        examples=["pinner strategy list"],
    )


def list_strategies(context: CommandContext, _arguments: Namespace) -> int:
    with context.open() as pinner:
        strategies = pinner.strategies()
    if context.json:
        print_items(strategies)
        return 0
    drawn = table("STRATEGY", "DESCRIPTION", "PARAMETERS")
    for strategy in strategies:
        drawn.add_row(*cells(strategy.name, strategy.summary, ", ".join(strategy.parameters)))
    context.show(drawn)
    return 0
