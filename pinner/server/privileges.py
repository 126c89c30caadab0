"""The users without root: the API's, and the owner of an SQLite file's folder, who opens the database. Root opens no
file that another user can replace by a symlink."""

import os
import pwd
import stat
from contextlib import suppress

from pinner import owners
from pinner.model.errors import Invalid
from pinner.server import installation, sockets
from pinner.store.database.engine import sqlite_file

_REMEDY = "`pinner-manage setup-host` creates the user pinner"
_NOBODY = 65534
"""Also of users that a user namespace does not map (user_namespaces(7))."""


def unprivileged(user: str, group: str) -> pwd.struct_passwd:
    """The account of a name or number; a number without an account gets this group. Raises Invalid for an unknown user
    or group, for root and for nobody."""
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        expected = f"the name or the number of an unprivileged user; {_REMEDY}"
        account = numbered(sockets.number("[api] user", user, expected), _own_group(group))
    if wrong := unsuitable(account.pw_uid, account.pw_name):
        raise Invalid("[api] user", user, wrong)
    return account


def _own_group(group: str) -> int:
    if gid := sockets.group_id(group):
        return gid
    raise Invalid("[api] group", group, "a group other than root's if [api] user is a number")


def numbered(uid: int, gid: int) -> pwd.struct_passwd:
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        return pwd.struct_passwd((str(uid), "x", uid, gid, "", "/", "/usr/sbin/nologin"))


def unsuitable(uid: int, name: str) -> str:
    """Why the API must not run as this user, and the remedy; empty for a suitable one."""
    if uid == 0:
        return f"a user other than root: the API never runs as root; {_REMEDY}"
    if uid == _NOBODY or name == "nobody":
        return f"a user of pinner's own: other programs run as nobody and could act as pinner's API; {_REMEDY}"
    return ""


def drop(account: pwd.struct_passwd) -> None:
    """There is no way back."""
    os.setgroups([])
    os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
    os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
    os.environ["HOME"] = account.pw_dir
    os.umask(0o077)


FIELD = "[database] connection"


def other_owner(url: str) -> pwd.struct_passwd | None:
    """Who must open the database in root's place; None: this process. Raises Invalid where several users can write its
    folder, or its owner has no account."""
    file = sqlite_file(url)
    if file is None or os.geteuid() != 0:
        return None
    owner = owners.owner_of(file.parent, FIELD)
    if owner == 0:
        return None
    account = numbered(owner, file.parent.stat().st_gid if file.parent.exists() else 0)
    if account.pw_gid == 0:
        raise Invalid(FIELD, str(file), f"a file in a folder of a user, not of root's group and user id {owner}")
    return account


def require_closed(url: str, user: int) -> None:
    """Raises Invalid for an SQLite file or folder that everybody can write: the audit trail. ``user``: who opens it."""
    if file := sqlite_file(url):
        for folder in (file.parent, file.resolve().parent):
            owners.require_closed(folder, FIELD, user)
        with suppress(FileNotFoundError, PermissionError):
            if file.stat().st_mode & stat.S_IWOTH:
                expected = f"a file that not everybody can write; call `chmod o-w {file}`"
                raise Invalid(FIELD, str(file), expected)


def become_owner(url: str) -> None:
    if owner := other_owner(url):
        installation.keep_readable(owner)
        drop(owner)
