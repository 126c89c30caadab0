"""The ``pinner-manage`` command: set up a host, make tokens for the API, upgrade the database."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib.metadata import version

from pinner.cli.frame.confirm import require_answer
from pinner.cli.frame.context import local_caller
from pinner.cli.frame.guard import guarded
from pinner.cli.frame.parser import (
    ASKING,
    Parser,
    UsageError,
    add_config_file,
    exit_status,
    wants_json,
)
from pinner.cli.manage import database, host_setup, tokens
from pinner.store.database.engine import engine_of, make_file

DESCRIPTION = """\
Set up this host for pinner, make tokens for the API, and manage the
database of pinner's plans, runs and audit trail."""

EPILOG = """\
examples:
  pinner-manage setup-host
  pinner-manage db current
  pinner-manage db upgrade
  pinner-manage token create ceilometer --role reader --expires 90d

pinner upgrades its database itself. Use this command to show the revision, and
to upgrade before pinner starts. A command that deletes something asks first;
without a terminal it needs --yes.

""" + exit_status(ASKING)


def main(argv: Sequence[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else list(argv)
    return guarded("pinner-manage", lambda: _run(argv), as_json=wants_json(argv))


def _run(argv: Sequence[str]) -> int:
    shared, rest = _shared_options().parse_known_args(argv)
    arguments = make_parser().parse_args(rest)
    if shared.config_file and not hasattr(arguments, "run"):  # only the commands of a database have ``run``
        raise UsageError("setup-host and remove-host read no configuration: call them without --config-file")
    arguments.config_file = shared.config_file
    # Before the database is opened: the caller cannot be known after root has been given up.
    arguments.caller = local_caller()
    arguments.execute(arguments)
    return 0


def _shared_options() -> Parser:
    """They are accepted before and after the command."""
    parser = Parser(add_help=False)
    add_config_file(parser)
    return parser


def make_parser() -> Parser:
    parser = Parser(prog="pinner-manage", description=DESCRIPTION, epilog=EPILOG, parents=[_shared_options()])
    parser.add_argument("--version", action="version", version=f"pinner {version('pinner')}")
    nouns = parser.with_commands()
    host_setup.register(nouns)
    tokens.register(nouns, _execute)
    database.register(nouns, _execute)
    return parser


def _execute(arguments: Namespace) -> None:
    # Imported here, because --help must not wait until libvirt is imported.
    from pinner import wiring
    from pinner.server.privileges import become_owner

    if hasattr(arguments, "yes"):
        require_answer(yes=arguments.yes or getattr(arguments, "dry_run", False))
    url = wiring.database_url(wiring.configuration(arguments.config_file))
    if getattr(arguments, "file", None) is not None:
        url = f"sqlite:///{arguments.file.resolve()}"
    become_owner(url)
    engine = engine_of(url)
    try:
        if arguments.run is not database.set_aside:
            make_file(engine)
        arguments.run(engine, arguments)
    finally:
        engine.dispose()
