"""Gives up root for good: the API runs as an unprivileged user."""

import os
import pwd

from pinner.model.errors import Invalid
from pinner.server import sockets

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
    """Where no account has the id, one without a name, in this group."""
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
    """Groups, group and user. There is no way back."""
    os.setgroups([])
    os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
    os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
    os.environ["HOME"] = account.pw_dir
    os.umask(0o077)
