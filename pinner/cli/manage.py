"""The ``pinner-manage`` command: what an administrator does to pinner's database, by hand and before an upgrade.

Exit status: 0 done, 1 failed, 2 bad input.
"""

import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from importlib.metadata import version

from sqlalchemy import Engine

from pinner.cli.parser import Commands, Parser, UsageError, add_config_file
from pinner.model.errors import Invalid, PinnerError
from pinner.render import visible
from pinner.store import schema
from pinner.store.engine import connect

DESCRIPTION = "Manages the database of pinner's plans, runs and audit trail."

EPILOG = """\
examples:
  pinner-manage db current
  pinner-manage db upgrade
  pinner-manage db downgrade --to base --config-file /etc/pinner/pinner.conf

pinner upgrades its default database by itself; this is for looking, and for going back.
Exit status: 0 done, 1 failed, 2 bad input."""


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out one command; the exit status."""
    try:
        arguments = make_parser().parse_args(sys.argv[1:] if argv is None else list(argv))
        return _carry_out(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    except (UsageError, Invalid) as error:
        return _complain(error, 2)
    except PinnerError as error:
        return _complain(error, 1)


def make_parser() -> Parser:
    """The whole grammar."""
    parser = Parser(prog="pinner-manage", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument("--version", action="version", version=f"pinner {version('pinner')}")
    about = "Shows and changes the schema of pinner's database."
    database = parser.with_commands().add_parser("db", help="the database's schema", description=about)
    commands = database.with_commands()
    _add(commands, "current", _current, "show the database's revision and the newest")
    upgrade = _add(commands, "upgrade", _upgrade, "bring the schema to the newest revision, or to --to")
    upgrade.add_argument("--to", metavar="REVISION", default="head", help="revision to upgrade to (default: head)")
    downgrade = _add(commands, "downgrade", _downgrade, "go back; what an older schema cannot hold is LOST")
    downgrade.add_argument(
        "--to", metavar="REVISION", required=True, help="revision to go back to; base drops every table"
    )
    return parser


def _add(commands: Commands, name: str, run: Callable[[Engine, Namespace], None], summary: str) -> Parser:
    parser = commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    add_config_file(parser)
    parser.set_defaults(run=run)
    return parser


def _carry_out(arguments: Namespace) -> int:
    # Imported here, because --help should not wait for libvirt.
    from pinner import wiring

    engine = connect(wiring.database_url(wiring.configuration(arguments.config_file)))
    try:
        arguments.run(engine, arguments)
    finally:
        engine.dispose()
    return 0


def _upgrade(engine: Engine, arguments: Namespace) -> None:
    schema.upgrade(engine, arguments.to)
    _current(engine, arguments)


def _downgrade(engine: Engine, arguments: Namespace) -> None:
    schema.downgrade(engine, arguments.to)
    _current(engine, arguments)


def _current(engine: Engine, _arguments: Namespace) -> None:
    print(f"{engine.url.render_as_string()}: revision {schema.current(engine)}, newest {schema.NEWEST}")


def _complain(error: Exception, status: int) -> int:
    print(f"pinner-manage: error: {visible(str(error))}", file=sys.stderr)
    return status
