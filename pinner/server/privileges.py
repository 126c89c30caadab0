"""Gives up root for good: the API runs as an unprivileged user."""

import os
import pwd

from pinner.model.errors import Invalid

_REMEDY = "`pinner-manage setup-host` creates the user pinner"
_NOBODY = 65534
"""The id of nobody, and of users that a user namespace does not map (user_namespaces(7))."""


def unprivileged(user: str) -> pwd.struct_passwd:
    """The account of ``user``. Raises Invalid for an unknown user, for root and for nobody."""
    try:
        account = pwd.getpwnam(user)
    except KeyError:
        raise Invalid("[api] user", user, f"the name of an existing unprivileged user; {_REMEDY}") from None
    if wrong := unsuitable(account.pw_uid, account.pw_name):
        raise Invalid("[api] user", user, wrong)
    return account


def unsuitable(uid: int, name: str) -> str:
    """Why the API must not run as this user, and the remedy; empty for a suitable user."""
    if uid == 0:
        return f"a user other than root: the API never runs as root; {_REMEDY}"
    if uid == _NOBODY or name == "nobody":
        return f"a user of pinner's own: other programs run as nobody and could act as pinner's API; {_REMEDY}"
    return ""


def drop(account: pwd.struct_passwd) -> None:
    """Give up root: set supplementary groups, group and user. There is no way back."""
    os.setgroups([])
    os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
    os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
    os.environ["HOME"] = account.pw_dir
    os.umask(0o077)
