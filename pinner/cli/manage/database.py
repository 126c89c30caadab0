"""pinner-manage db current | upgrade | purge | set-aside."""

from argparse import Namespace
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Engine

from pinner.cli.frame.context import agreed
from pinner.cli.frame.parser import Commands, add_database_command
from pinner.cli.frame.values import path, whole
from pinner.model.errors import Invalid
from pinner.store.database import schema
from pinner.store.database.damage import set_file_aside
from pinner.store.repositories import open_store


def register(nouns: Commands, execute: Callable[[Namespace], None]) -> None:
    database = nouns.add_parser(
        "db",
        help="show and change the database's schema",
        description="Show and change the schema of pinner's database.",
    )
    database.set_defaults(execute=execute)
    commands = database.with_commands()
    add_database_command(commands, "db", "current", _current, "show the database's revision and the newest revision")
    add_database_command(commands, "db", "upgrade", _upgrade, "upgrade the schema to the newest revision")
    summary = "delete old runs, plans, snapshots and tokens (see [retention])"
    example = "purge --dry-run --runs-days 30"
    purge = add_database_command(commands, "db", "purge", _purge, summary, example=example, asks=True)
    purge.add_argument("--dry-run", action="store_true", help="show how many rows would be deleted")
    for name, what in (("runs", "ended runs"), ("plans", "plans and snapshots that nothing refers to")):
        about = f"days that {what} are kept (default: [retention] {name}_days)"
        purge.add_argument(f"--{name}-days", metavar="DAYS", type=_days, help=about)
    summary = "rename a damaged SQLite file, so that pinner starts with an empty one; the renamed file is kept"
    aside = add_database_command(commands, "db", "set-aside", set_aside, summary, asks=True)
    aside.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        type=path,
        help="the file, for instance the agent's journal (default: pinner's database)",
    )


def _upgrade(engine: Engine, arguments: Namespace) -> None:
    schema.upgrade(engine)
    _current(engine, arguments)


def _days(text: str) -> int:
    from pinner.conf.options import MOST_DAYS

    return whole(text, 1, MOST_DAYS, f"a number of days from 1 to {MOST_DAYS}")


def _purge(engine: Engine, arguments: Namespace) -> None:
    from pinner import wiring

    if not (arguments.dry_run or agreed("Delete old runs, plans, snapshots and tokens?", yes=arguments.yes)):
        return
    config = wiring.configuration(arguments.config_file)
    for name in ("runs_days", "plans_days"):
        if (days := getattr(arguments, name)) is not None:
            config.set_override(name, days, group="retention")
    with open_store(engine.url.render_as_string(hide_password=False)) as store:
        done = wiring.purge(config, store.retention, dry_run=arguments.dry_run)
    verb = "would delete" if arguments.dry_run else "deleted"
    print(f"{verb} {done}")


def set_aside(engine: Engine, arguments: Namespace) -> None:
    if arguments.file is None and engine.dialect.name != "sqlite":
        raise Invalid("file", None, f"a file of SQLite; {engine.dialect.name} has its own tools for repair")
    path = (arguments.file or Path(str(engine.url.database))).resolve()
    if not agreed(f"Rename {path}, so that pinner starts with an empty file?", yes=arguments.yes):
        return
    for renamed in set_file_aside(path, datetime.now(UTC)):
        print(f"kept as {renamed}")


def _current(engine: Engine, _arguments: Namespace) -> None:
    print(f"{engine.url.render_as_string()}: revision {schema.current(engine)}, newest {schema.NEWEST}")
