"""The ``pinner-manage`` command: set up a host, make tokens for the API, upgrade the database."""

import logging
import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from pinner.cli.frame.context import agreed, local_caller, require_answer
from pinner.cli.frame.guard import guarded, log_to_stderr
from pinner.cli.frame.output import print_line
from pinner.cli.frame.parser import (
    ASKING,
    Commands,
    Parser,
    UsageError,
    add_config_file,
    add_debug,
    exit_status,
    wants_json,
    yes_option,
)
from pinner.cli.frame.values import path
from pinner.cli.manage import database, tokens
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
    return guarded("pinner-manage", lambda: _run(argv), debug="--debug" in argv, as_json=wants_json(argv))


def _run(argv: Sequence[str]) -> int:
    shared, rest = _shared_options().parse_known_args(argv)
    arguments = make_parser().parse_args(rest)
    if shared.config_file and not hasattr(arguments, "run"):  # only the commands of a database have ``run``
        raise UsageError("setup-host and remove-host read no configuration: call them without --config-file")
    arguments.config_file = shared.config_file
    if shared.debug:
        log_to_stderr(logging.DEBUG)
    # Before the database is opened: the caller cannot be known after root has been given up.
    arguments.caller = local_caller()
    arguments.execute(arguments)
    return 0


def _shared_options() -> Parser:
    parser = Parser(add_help=False)
    add_config_file(parser)
    add_debug(parser)
    return parser


def make_parser() -> Parser:
    parser = Parser(prog="pinner-manage", description=DESCRIPTION, epilog=EPILOG, parents=[_shared_options()])
    parser.add_argument("--version", action="version", version=f"pinner {version('pinner')}")
    nouns = parser.with_commands()
    _register_host_setup(nouns)
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


_SETUP = """\
Set up this host for pinner, as root: the system user and group pinner, the
folders /etc/pinner, /var/lib/pinner and /run/pinner, the configuration
/etc/pinner/pinner.conf where there is none, and hardened systemd units for the
agent, the API and the listener for Nova's notifications. The units start the
programs of the virtual environment that this command belongs to. Agent and API
start with the host; the listener is enabled by hand. A second call changes
nothing, except that it updates the units of an older version."""

_REMOVE = """\
Remove what setup-host has made, as root: stop and disable the units, and remove
them with the user, the group and an unchanged configuration. The state
(/var/lib/pinner) and a changed configuration stay, except with --purge.

The command refuses while the agent's journal names a run that is applied or in
progress, as it does after an enforced policy has placed guests or processes. It
does not see a policy that has placed nothing yet."""

_STATUS = {
    1: "failed, or refused because changes of pinner are still made",
    2: "bad input, not possible on this host, or (remove-host) an answer is needed",
}


def _register_host_setup(commands: Commands) -> None:
    setup = _add(commands, "setup-host", "make pinner's user, folders, configuration and systemd units", _SETUP)
    setup.set_defaults(execute=_setup)
    remove = _add(commands, "remove-host", "stop pinner's units, and remove what setup-host has made", _REMOVE)
    remove.add_argument("--purge", action="store_true", help="remove the state and the configuration, too")
    remove.add_argument("--force", action="store_true", help="do not search for applied runs; their changes stay made")
    yes_option(remove)
    remove.set_defaults(execute=_remove)


def _add(commands: Commands, name: str, summary: str, about: str) -> Parser:
    example = f"examples:\n  pinner-manage {name} --dry-run\n  pinner-manage {name}"
    parser = commands.add_parser(name, help=summary, description=about, epilog=f"{exit_status(_STATUS)}\n\n{example}")
    add_debug(parser)
    parser.add_argument("--dry-run", action="store_true", help="show the steps, and change nothing")
    parser.add_argument(
        "--root",
        metavar="DIR",
        type=path,
        default=Path("/"),
        help="write to or remove from the file system below DIR, such as an image; its users and services are left "
        "alone (default: /)",
    )
    return parser


def _setup(arguments: Namespace) -> None:
    # Imported here, because --help must not wait until the server is imported.
    from pinner.hostsetup.layout import Layout
    from pinner.hostsetup.setup import setup_host

    setup_host(Layout(arguments.root.absolute()), print_line, dry_run=arguments.dry_run)


def _remove(arguments: Namespace) -> None:
    from pinner.hostsetup.layout import Layout
    from pinner.hostsetup.setup import remove_host

    layout = Layout(arguments.root.absolute())
    if not arguments.dry_run:
        require_answer(yes=arguments.yes)
        too = ", with its state and configuration" if arguments.purge else ""
        if not agreed(f"Remove pinner from {layout.root}{too}?", yes=arguments.yes):
            return
    remove_host(layout, print_line, dry_run=arguments.dry_run, purge=arguments.purge, force=arguments.force)
