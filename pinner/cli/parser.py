"""The grammar of the command line: one-line complaints, and the options that every command has."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"
"""What commands are added to."""


class UsageError(Exception):
    """The command line does not parse."""


class Parser(argparse.ArgumentParser):
    """Complains in one line, and takes no abbreviated options: a script that uses one breaks when an option is added.

    ``implied`` is the command that is meant where none is named: ``pinner plan`` is ``pinner plan create``.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **settings)
        self.implied = ""
        self.commands: Commands | None = None

    def with_commands(self) -> Commands:
        """Make this the parser of a noun; its commands are added to what comes back."""
        self.commands = self.add_subparsers(title="commands", metavar="COMMAND", required=True)
        return self.commands

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does, with the implied command put in where none is named."""
        if self.implied and self.commands and not (args and args[0] in (*self.commands.choices, "-h", "--help")):
            args = [self.implied, *args]
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """Raises UsageError; argparse would print the usage and end the program."""
        raise UsageError(f"{message.removeprefix('argument ')} (see: {self.prog} --help)")


def shared_options() -> Parser:
    """The options of every command; main reads them first, so that they may stand before or after the command."""
    parser = Parser(add_help=False)
    group = parser.add_argument_group("options of every command")
    group.add_argument("--json", action="store_true", help="print one JSON document instead of tables")
    group.add_argument("--url", metavar="URL", help="ask the pinner server at URL (PINNER_URL), not this host")
    group.add_argument(
        "--token-file", metavar="FILE", type=Path, help="file that holds the server's token (else PINNER_TOKEN)"
    )
    add_config_file(group)
    group.add_argument("--debug", action="store_true", help="show the log, and the traceback of an error")
    return parser


def add_config_file(to: "argparse._ActionsContainer") -> None:
    """Add the option that names configuration files."""
    to.add_argument(
        "--config-file",
        metavar="FILE",
        type=Path,
        action="append",
        help="configuration to read instead of /etc/pinner/pinner.conf; may be repeated",
    )


def add_noun(commands: Commands, name: str, summary: str, *, implied: str = "", about: str = "") -> Commands:
    """Add a noun; its commands are added to what comes back."""
    parser = commands.add_parser(name, help=summary, description=_sentences(summary, about))
    parser.implied = implied
    return parser.with_commands()


def add_command(
    commands: Commands,
    name: str,
    run: Callable[..., int],
    summary: str,
    *,
    about: str = "",
    examples: Sequence[str],
) -> Parser:
    """Add a command that ``run(context, arguments)`` carries out; it returns the exit status."""
    parser = commands.add_parser(
        name,
        help=summary,
        description=_sentences(summary, about),
        epilog="examples:\n" + "\n".join(f"  {example}" for example in examples),
        parents=[shared_options()],
    )
    parser.set_defaults(run=run)
    return parser


def _sentences(summary: str, about: str) -> str:
    return "\n\n".join(part for part in (f"{summary[0].upper()}{summary[1:]}.", about) if part)
