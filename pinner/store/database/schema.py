"""The schema revision of a database, and upgrades from the revision of an earlier release.

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

from pinner.model.errors import OtherRevision
from pinner.store.database.damage import new_database
from pinner.store.database.engine import reading, where
from pinner.store.database.migration import is_finished, marked, migrating, require_finished
from pinner.store.database.server_settings import require_settings

if TYPE_CHECKING:
    from alembic.config import Config

NEWEST = "1.0"
"""The revision that this code reads and writes: the release that has changed the schema last."""

EMPTY = "base"
"""alembic's name for the revision of a database without tables."""


def current(engine: Engine) -> str:
    """The database's revision; EMPTY if it has no tables. Raises StoreUnavailable."""
    with reading(engine) as connection:
        return _current(connection)


def ensure(engine: Engine) -> None:
    """Upgrade an empty database, or one of an earlier release, to NEWEST. Raises StoreUnavailable, and OtherRevision
    for a database of any other version."""
    with reading(engine) as connection:
        if is_finished(connection) and _version(connection) == NEWEST:
            return
        require_settings(connection)
    upgrade(engine)


def upgrade(engine: Engine) -> None:
    """Upgrade to NEWEST in one transaction. Raises StoreUnavailable and OtherRevision, like ``ensure``."""
    from alembic import command

    with migrating(engine) as connection, _config(connection) as config:
        found = _current(connection)
        if found != NEWEST:  # another process may have upgraded the database meanwhile
            with marked(connection, found, NEWEST):
                command.upgrade(config, "head")


def _current(connection: Connection) -> str:
    require_finished(connection)
    return _version(connection)


def _version(connection: Connection) -> str:
    if not inspect(connection).has_table("alembic_version"):
        return EMPTY
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar() or EMPTY


@contextmanager
def _config(connection: Connection) -> Iterator["Config"]:
    """alembic's configuration for this connection. Raises OtherRevision where no migration has the revision of the
    database."""
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    with as_file(files("pinner.migrations")) as scripts, _resolvable(scripts) as folder:
        config = Config()
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        config.attributes["connection"] = connection
        known = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
        if (found := _current(connection)) not in (EMPTY, *known):
            raise OtherRevision(where(connection.engine), found, NEWEST, new_database(connection.engine))
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
