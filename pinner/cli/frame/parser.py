"""The argument parser: one-line errors, help texts, and the options of every command."""

import argparse
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NoReturn, TypeAlias

from pinner.cli.frame.values import path

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"
Options: TypeAlias = "argparse._ActionsContainer"
"""A parser, or a group of options in a parser."""

EXIT_STATUS = {0: "done", 1: "failed", 2: "bad input", 130: "interrupted by Ctrl-C"}
ASKING = {2: "bad input, or refused because an answer is needed (see --yes)"}
CHANGES = 3
"""The exit status with --detailed-exitcode where there are changes."""


class UsageError(Exception):
    code = "usage"


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Breaks help texts at spaces only, so that shared-pool is not split."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


class Parser(argparse.ArgumentParser):
    """Reports an error in one line. Refuses abbreviated options: a later option could make one ambiguous. ``implied``
    is the command to run if none is named: ``pinner plan`` means ``pinner plan create``."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=HelpFormatter, **settings)
        self.implied = ""
        self.commands: Commands | None = None

    def with_commands(self) -> Commands:
        self.commands = self.add_subparsers(title="commands", metavar="COMMAND", required=True)
        return self.commands

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.implied and self.commands and not (args and args[0] in (*self.commands.choices, "-h", "--help")):
            args = [self.implied, *args]
        namespace, extras = super().parse_known_args(args, namespace)
        if extras and self.get_default("run"):
            self.error(f"unrecognized arguments: {' '.join(extras)}")  # here, to name the help of this command
        return namespace, extras

    def error(self, message: str) -> NoReturn:
        """argparse would print the usage and exit."""
        raise UsageError(f"{message.removeprefix('argument ')} (see: {self.prog} --help)")


@cache
def shared_options() -> Parser:
    """``main`` parses these options first, so they are accepted before and after the command."""
    parser = Parser(add_help=False)
    group = parser.add_argument_group("options of every command")
    group.add_argument(
        "--json", action="store_true", help="print one JSON document instead of tables, and an error as JSON on stderr"
    )
    group.add_argument(
        "--url",
        metavar="URL",
        help="use the pinner server at URL: unix:/path/of/socket, http://host:port or https://host:port (default: the "
        "value of PINNER_URL, if set, else the server of this host, if one runs, else this command works alone)",
    )
    group.add_argument(
        "--token-file",
        metavar="FILE",
        type=path,
        help="file with the bearer token for a server over TCP (default: the token in PINNER_TOKEN, if set)",
    )
    add_config_file(group)
    add_debug(group)
    return parser


def wants_json(argv: Sequence[str]) -> bool:
    """Read before the command line is parsed, because its errors are JSON, too."""
    return "--json" in argv or "--format=json" in argv or ("--format", "json") in pairwise(argv)


def detailed_exitcode(parser: Parser, changes: str) -> None:
    parser.add_argument("--detailed-exitcode", action="store_true", help=f"exit status {CHANGES} {changes}, else 0")


def yes_option(to: Options) -> None:
    to.add_argument(
        "--yes", action="store_true", help="do not ask before the change; needed where there is no terminal to ask at"
    )


def add_config_file(to: Options) -> None:
    to.add_argument(
        "--config-file",
        metavar="FILE",
        type=path,
        action="append",
        help="configuration file to read instead of /etc/pinner/pinner.conf; may be repeated",
    )


def add_debug(to: Options) -> None:
    to.add_argument("--debug", action="store_true", help="also print the log and the traceback of an error")


def add_noun(commands: Commands, name: str, summary: str, *, implied: str = "", about: str = "") -> Commands:
    parser = commands.add_parser(
        name,
        help=summary,
        description=_sentences(summary, about),
        epilog=f"`pinner {name} COMMAND --help` describes each command.",
    )
    parser.implied = implied
    return parser.with_commands()


def add_command(
    commands: Commands,
    name: str,
    run: Callable[..., int],
    summary: str,
    *,
    about: str = "",
    status: Mapping[int, str] | None = None,
    asks: bool = False,
    examples: Sequence[str],
) -> Parser:
    """``run(context, arguments)`` returns the exit status. ``status`` replaces meanings in EXIT_STATUS. ``asks``: the
    command asks before a change, and has the option --yes."""
    meanings = {**(ASKING if asks else {}), **(status or {})}
    parser = commands.add_parser(
        name,
        help=summary,
        description=_sentences(summary, about),
        epilog=f"{exit_status(meanings)}\n\nexamples:\n" + "\n".join(f"  {example}" for example in examples),
        parents=[shared_options()],
    )
    parser.set_defaults(run=run)
    if asks:
        yes_option(parser)
    return parser


def add_database_command(
    commands: Commands,
    noun: str,
    name: str,
    run: Callable[..., None],
    summary: str,
    *,
    about: str = "",
    example: str = "",
    asks: bool = False,
) -> Parser:
    """``run(engine, arguments)`` executes the command. ``example`` is a call of it; empty: without options."""
    parser = commands.add_parser(
        name,
        help=summary,
        description=_sentences(summary, about),
        epilog=f"{exit_status(ASKING if asks else {})}\n\nexamples:\n  pinner-manage {noun} {example or name}",
    )
    if asks:
        yes_option(parser)
    add_config_file(parser)
    add_debug(parser)
    parser.set_defaults(run=run)
    return parser


def exit_status(replacements: Mapping[int, str]) -> str:
    meanings = sorted({**EXIT_STATUS, **replacements}.items())
    return "exit status:\n" + "\n".join(f"  {number:<5}{text}" for number, text in meanings)


def _sentences(summary: str, about: str) -> str:
    return "\n\n".join(part for part in (f"{summary[0].upper()}{summary[1:]}.", about) if part)
