"""A temporary system user with a group of its own, as which `pinner serve` runs its API in the demo and in tests."""

import fcntl
import os
import pwd
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

PREFIX = "pinner-tmp-"
"""The start of each name; the process id of the creator follows."""
_LOCK = Path("/run/lock/pinner-temporary-account")
_numbers = count()


@dataclass(frozen=True)
class Account:
    """A system user; its group has the same name."""

    name: str
    uid: int
    gid: int

    @property
    def config(self) -> str:
        """The lines of pinner's configuration that name the account."""
        return f"[api]\nuser = {self.name}\ngroup = {self.name}\n"


@contextmanager
def temporary_account() -> Iterator[Account]:
    """A new system user without home and shell, and its group; both are removed at the end. Needs root.

    Accounts that a killed process left behind are removed, too. Raises subprocess.CalledProcessError.
    """
    creator, name = os.getpid(), f"{PREFIX}{os.getpid()}-{next(_numbers)}"
    with _changing_accounts():
        for left in _left_behind():
            _remove(left)
        _run("useradd", "--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent",
             "--shell", "/usr/sbin/nologin", name)  # fmt: skip
    try:
        entry = pwd.getpwnam(name)
        yield Account(name, entry.pw_uid, entry.pw_gid)
    finally:
        if os.getpid() == creator:  # a forked child leaves the account to its parent
            with _changing_accounts():
                _remove(name)


@contextmanager
def _changing_accounts() -> Iterator[None]:
    """Wait for other processes that change accounts here: useradd(8) fails where another process holds its lock."""
    with _LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _left_behind() -> Iterator[str]:
    for entry in pwd.getpwall():
        if entry.pw_name.startswith(PREFIX):
            creator = entry.pw_name.removeprefix(PREFIX).partition("-")[0]
            if not Path("/proc", creator).exists():
                yield entry.pw_name


def _remove(name: str) -> None:
    """Remove a user and its group, even while a process of the user ends."""
    with suppress(subprocess.CalledProcessError):
        _run("userdel", "--force", name)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
