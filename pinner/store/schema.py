"""Which schema a database has, and bringing it to this version's.

The migrations are alembic's and ship inside the package, so no alembic.ini is needed. alembic is imported only when a
database must change: to find out that none must takes one query.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, inspect, text

from pinner.model.errors import Invalid, StoreUnavailable
from pinner.store.engine import reading, writing

if TYPE_CHECKING:
    from alembic.config import Config

NEWEST = "0005"
"""The revision that this code reads and writes."""

EMPTY = "base"
"""alembic's word for a database without any table."""


def current(engine: Engine) -> str:
    """The database's revision; EMPTY where no table is. Raises StoreUnavailable."""
    with reading(engine) as connection:
        return _current(connection)


def ensure(engine: Engine) -> None:
    """Bring an empty or older database to NEWEST. Raises StoreUnavailable for one that a newer pinner made."""
    if current(engine) != NEWEST:
        upgrade(engine)


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Upgrade in one transaction. Raises StoreUnavailable (newer than this code), Invalid (no such revision)."""
    from alembic import command

    with writing(engine) as connection, _config(connection, revision) as config:
        command.upgrade(config, revision)


def downgrade(engine: Engine, revision: str) -> None:
    """Downgrade in one transaction; ``base`` drops every table. Raises StoreUnavailable, Invalid."""
    from alembic import command

    with writing(engine) as connection, _config(connection, revision) as config:
        command.downgrade(config, revision)


def _current(connection: Connection) -> str:
    if not inspect(connection).has_table("alembic_version"):
        return EMPTY
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar() or EMPTY


@contextmanager
def _config(connection: Connection, revision: str) -> Iterator["Config"]:
    """alembic's configuration for this connection, once the database and the revision are known to it."""
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    with as_file(files("pinner.migrations")) as folder:
        config = Config()
        config.set_main_option("script_location", str(folder).replace("%", "%%"))
        config.attributes["connection"] = connection
        known = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
        if (found := _current(connection)) not in (EMPTY, *known):
            url = connection.engine.url.render_as_string()
            raise StoreUnavailable(url, f"its schema {found} was made by a newer pinner; this one knows {NEWEST}")
        if revision not in ("head", EMPTY, *known):
            raise Invalid("revision", revision, f"head, base or one of {', '.join(reversed(known))}")
        yield config
