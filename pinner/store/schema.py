"""The schema revision of a database, and upgrades to the revision of this version.

The migrations use alembic and are part of the package, so no alembic.ini is needed. alembic is imported only when a
database must be changed; the check whether it must be takes one query.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, inspect, text

from pinner.model.errors import Invalid, StoreUnavailable
from pinner.store.engine import reading, where
from pinner.store.migration import is_finished, marked, migrating, require_finished
from pinner.store.server_settings import require_settings

if TYPE_CHECKING:
    from alembic.config import Config

NEWEST = "0026"
"""The revision that this code reads and writes."""

EMPTY = "base"
"""alembic's name for the revision of a database without tables."""


def current(engine: Engine) -> str:
    """The database's revision; EMPTY if it has no tables. Raises StoreUnavailable."""
    with reading(engine) as connection:
        return _current(connection)


def ensure(engine: Engine) -> None:
    """Upgrade an empty or older database to NEWEST. Raises StoreUnavailable for a database of a newer pinner."""
    with reading(engine) as connection:
        if is_finished(connection) and _version(connection) == NEWEST:
            return
        require_settings(connection)
    upgrade(engine)


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Upgrade in one transaction. Raises StoreUnavailable (database of a newer pinner), Invalid (unknown revision)."""
    from alembic import command

    with migrating(engine) as connection, _config(connection, revision) as config:
        if _current(connection) != NEWEST:  # another process may have upgraded the database meanwhile
            with marked(connection, _current(connection), revision):
                command.upgrade(config, revision)


def downgrade(engine: Engine, revision: str) -> None:
    """Downgrade in one transaction; ``base`` drops all tables. Raises StoreUnavailable, Invalid."""
    from alembic import command

    with (
        migrating(engine) as connection,
        _config(connection, revision) as config,
        marked(connection, _current(connection), revision),
    ):
        command.downgrade(config, revision)


def _current(connection: Connection) -> str:
    require_finished(connection)
    return _version(connection)


def _version(connection: Connection) -> str:
    if not inspect(connection).has_table("alembic_version"):
        return EMPTY
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar() or EMPTY


@contextmanager
def _config(connection: Connection, revision: str) -> Iterator["Config"]:
    """alembic's configuration for this connection.

    Raises StoreUnavailable if the database has a revision that this version does not know, Invalid for an unknown
    ``revision``.
    """
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    with as_file(files("pinner.migrations")) as scripts, _resolvable(scripts) as folder:
        config = Config()
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        config.attributes["connection"] = connection
        known = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
        if (found := _current(connection)) not in (EMPTY, *known):
            raise StoreUnavailable(
                where(connection.engine),
                f"its schema {found} was created by a newer pinner; this version knows {NEWEST}. Nothing is changed: "
                "install that version again, or restore the backup from before its installation",
            )
        if revision not in ("head", EMPTY, *known):
            raise Invalid("revision", revision, f"head, base or one of {', '.join(reversed(known))}")
        yield config


@contextmanager
def _resolvable(folder: Path) -> Iterator[Path]:
    """The folder at a path without symbolic links, which alembic resolves.

    A process that has given up root may reach the installation through open descriptors alone; then this is a copy.
    """
    if os.access(folder.resolve(), os.R_OK):
        yield folder
        return
    with TemporaryDirectory(prefix="pinner-") as copy:
        yield shutil.copytree(folder, Path(copy, "migrations"), ignore=shutil.ignore_patterns("__pycache__"))
