"""Who decides where a path leads. The writer of a folder can replace each file in it by a symlink (path_resolution(7)):
root opens no file in a folder that another user can write."""

import grp
import os
import pwd
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pinner.model.errors import Invalid

MAX_LINKS = 40
"""The kernel's limit of symlinks in one path (path_resolution(7))."""


def owner_of(folder: Path, field: str) -> int:
    """The id of the user who decides what the path to ``folder`` leads to: 0 where only root does. A missing folder is
    of its nearest parent's owner. Raises Invalid for ``field`` where several users can write the path."""
    steps = list(_steps(folder))
    for path, status in steps:
        others_write = not stat.S_ISLNK(status.st_mode) and status.st_mode & 0o022
        # In a sticky folder (/tmp) others cannot replace what it contains, but can create what is missing.
        if others_write and (not status.st_mode & stat.S_ISVTX or path == steps[-1][0]):
            raise Invalid(field, str(folder), f"a path that only its owner can write; others can write {path}")
    users = {status.st_uid for _, status in steps} - {0}
    if len(users) > 1:
        named = ", ".join(f"{path} belongs to user id {status.st_uid}" for path, status in steps if status.st_uid)
        raise Invalid(field, str(folder), f"a path of root and of one other user at most; {named}")
    return users.pop() if users else 0


def require_own(folder: Path, field: str) -> None:
    """Raises Invalid where this process is root's and another user can write the path to the folder."""
    if os.geteuid() == 0 and (owner := owner_of(folder, field)):
        raise Invalid(field, str(folder), f"a path that only root can write; user id {owner} can write it")


def require_closed(folder: Path, field: str, user: int) -> None:
    """Raises Invalid where everybody can write files in ``folder``, which ``user`` (an id) opens. A folder that this
    process cannot enter is closed."""
    with suppress(PermissionError):
        steps = list(_steps(folder))
        above_is_open = False
        for path, status in steps:
            if above_is_open and status.st_uid not in (0, user):
                expected = f"a folder of root or of user id {user}; {path} belongs to user id {status.st_uid}"
                raise Invalid(field, str(folder), f"{expected}, who made it in a folder that everybody can write")
            is_open = not stat.S_ISLNK(status.st_mode) and bool(status.st_mode & stat.S_IWOTH)
            # In a sticky folder (/tmp) others cannot replace what it contains, but can create what is missing.
            if is_open and (not status.st_mode & stat.S_ISVTX or path == steps[-1][0]):
                expected = f"a folder that not everybody can write; everybody can write {path}"
                raise Invalid(field, str(folder), f"{expected}; use another folder, or call `chmod o-w {path}`")
            above_is_open = is_open


def connect_remedy(path: Path) -> str:
    """How this user gets the right to connect to the Unix socket, which the kernel has refused."""
    user = f"uid {os.geteuid()}"
    with suppress(KeyError):
        user = pwd.getpwuid(os.geteuid()).pw_name
    try:
        status = path.stat()
        group = grp.getgrgid(status.st_gid).gr_name if status.st_mode & stat.S_IWGRP else ""
    except (OSError, KeyError):
        group = ""
    if not group:
        return f"user {user} may not connect; only the user who runs this server may"
    return f"user {user} is not in the group {group}: run `sudo usermod -aG {group} {user}`, then log in again"


def _steps(path: Path) -> Iterator[tuple[Path, os.stat_result]]:
    here, links = Path("/"), 0
    names = deque(path.absolute().parts[1:])
    yield here, here.lstat()
    while names:
        name = names.popleft()
        if name == "..":
            here = here.parent
            continue
        try:
            status = (here / name).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return
        yield here / name, status
        if not stat.S_ISLNK(status.st_mode):
            here /= name
            continue
        links += 1
        if links > MAX_LINKS:
            return  # the kernel refuses such a path, too
        target = (here / name).readlink()
        if target.is_absolute():
            here = Path("/")
        names.extendleft(reversed(target.parts[1:] if target.is_absolute() else target.parts))
