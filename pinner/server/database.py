"""The user who opens the database: the owner of an SQLite file's folder. Root opens no file that another user can
replace by a symlink."""

import os
import pwd
import stat
from contextlib import suppress

from pinner import owners
from pinner.model.errors import Invalid
from pinner.owners import owner_of
from pinner.server import installation, privileges
from pinner.store.database.engine import sqlite_file

FIELD = "[database] connection"


def other_owner(url: str) -> pwd.struct_passwd | None:
    """Who must open the database in place of root; None: this process. Raises Invalid where several users can write its
    folder, and where the owner has no account and no group."""
    file = sqlite_file(url)
    if file is None or os.geteuid() != 0:
        return None
    owner = owner_of(file.parent, FIELD)
    if owner == 0:
        return None
    account = privileges.numbered(owner, file.parent.stat().st_gid if file.parent.exists() else 0)
    if account.pw_gid == 0:
        raise Invalid(FIELD, str(file), f"a file in a folder of a user, not of root's group and user id {owner}")
    return account


def require_closed(url: str, user: int) -> None:
    """Raises Invalid for an SQLite file, or its folder, that everybody can write: they could replace the audit trail.
    ``user``: who opens it."""
    if file := sqlite_file(url):
        for folder in (file.parent, file.resolve().parent):
            owners.require_closed(folder, FIELD, user)
        with suppress(FileNotFoundError, PermissionError):
            if file.stat().st_mode & stat.S_IWOTH:
                expected = f"a file that not everybody can write; call `chmod o-w {file}`"
                raise Invalid(FIELD, str(file), expected)


def become_owner(url: str) -> None:
    """Give up root for that user, if there is one."""
    if owner := other_owner(url):
        installation.keep_readable(owner)
        privileges.drop(owner)
