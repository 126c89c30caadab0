"""The ``pinner-manage`` command: an administrator sets up a host, makes tokens for the API, and upgrades the database.

Exit status: 0 done, 1 failed, 2 bad input.
"""

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from importlib.metadata import version

from sqlalchemy import Engine

from pinner.cli import host_setup, tokens
from pinner.cli.context import local_caller
from pinner.cli.guard import guarded
from pinner.cli.parser import Commands, Parser, add_config_file
from pinner.store import schema
from pinner.store.engine import connect

STATUS = """\
exit status:
  0    done
  1    failed
  2    bad input"""

DESCRIPTION = """\
Set up this host for pinner, make tokens for the API, and manage the
database of pinner's plans, runs and audit trail."""

EPILOG = (
    """\
examples:
  pinner-manage setup-host
  pinner-manage db current
  pinner-manage db upgrade
  pinner-manage db downgrade --to base --config-file /etc/pinner/pinner.conf
  pinner-manage token create ceilometer --role reader --expires 90d

pinner upgrades its default database itself. Use this command to show the
revision, to upgrade another database, and to downgrade.

"""
    + STATUS
)


def main(argv: Sequence[str] | None = None) -> int:
    """Execute one command, and return the exit status."""
    argv = sys.argv[1:] if argv is None else list(argv)
    return guarded("pinner-manage", lambda: _run(argv))


def _run(argv: Sequence[str]) -> int:
    arguments = make_parser().parse_args(argv)
    # Before the database is opened: the caller cannot be known after root has been given up.
    arguments.caller = local_caller()
    arguments.execute(arguments)
    return 0


def make_parser() -> Parser:
    """The parser of all commands."""
    parser = Parser(prog="pinner-manage", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"pinner {version('pinner')}")
    about = "Show and change the schema of pinner's database."
    nouns = parser.with_commands()
    host_setup.register(nouns)
    tokens.register(nouns, _execute)
    database = nouns.add_parser("db", help="show and change the database's schema", description=about)
    commands = database.with_commands()
    _add(commands, "current", _current, "show the database's revision and the newest revision")
    upgrade = _add(commands, "upgrade", _upgrade, "upgrade the schema to the newest or another revision")
    upgrade.add_argument(
        "--to", metavar="REVISION", default="head", help="revision to upgrade to (default: head, the newest)"
    )
    summary = "downgrade the schema; data that the older schema cannot store is LOST"
    downgrade = _add(commands, "downgrade", _downgrade, summary, example="downgrade --to base")
    downgrade.add_argument(
        "--to", metavar="REVISION", required=True, help="revision to downgrade to; base drops every table"
    )
    return parser


def _add(
    commands: Commands, name: str, run: Callable[[Engine, Namespace], None], summary: str, *, example: str = ""
) -> Parser:
    """Add a command that ``run`` executes. ``example`` is a call of it; empty: the command without options."""
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"{STATUS}\n\nexamples:\n  pinner-manage db {example or name}",
    )
    add_config_file(parser)
    parser.set_defaults(run=run, execute=_execute)
    return parser


def _execute(arguments: Namespace) -> None:
    # Imported here, because --help must not wait until libvirt is imported.
    from pinner import wiring
    from pinner.server.database import become_owner

    url = wiring.database_url(wiring.configuration(arguments.config_file))
    become_owner(url)
    engine = connect(url)
    try:
        arguments.run(engine, arguments)
    finally:
        engine.dispose()


def _upgrade(engine: Engine, arguments: Namespace) -> None:
    schema.upgrade(engine, arguments.to)
    _current(engine, arguments)


def _downgrade(engine: Engine, arguments: Namespace) -> None:
    schema.downgrade(engine, arguments.to)
    _current(engine, arguments)


def _current(engine: Engine, _arguments: Namespace) -> None:
    print(f"{engine.url.render_as_string()}: revision {schema.current(engine)}, newest {schema.NEWEST}")
