"""User ids that no account has, as which `pinner serve` runs its API in the demo and in tests.

The kernel needs no account for a process of a user, so nothing in /etc/passwd changes.
"""

import grp
import os
import pwd
from contextlib import suppress
from dataclasses import dataclass

_FREE = range(60_600, 61_184)
"""Ids that neither Debian nor systemd gives to anybody. They exist in most containers, too."""


@dataclass(frozen=True)
class SpareUser:
    """A user id without an account, and the group with the same number."""

    uid: int

    @property
    def gid(self) -> int:
        """The id of the user's group."""
        return self.uid

    @property
    def config(self) -> str:
        """The lines of pinner's configuration that name the user."""
        return f"[api]\nuser = {self.uid}\ngroup = {self.gid}\n"

    def become(self) -> None:
        """Give up root for this user."""
        os.setgroups([])
        os.setresgid(self.gid, self.gid, self.gid)
        os.setresuid(self.uid, self.uid, self.uid)


def spare_user(number: int = 0) -> SpareUser:
    """The first user that has neither an account nor a group, or the one with this ``number`` from 0."""
    return SpareUser([uid for uid in _FREE if _is_free(uid)][number])


def _is_free(uid: int) -> bool:
    for find in (pwd.getpwuid, grp.getgrgid):
        with suppress(KeyError):
            find(uid)
            return False
    return True
