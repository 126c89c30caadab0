"""The state folder of a server that root starts: root's, with one part for the agent and one for the API's user."""

import fcntl
import os
import pwd
import stat
from pathlib import Path

from pinner.model.errors import Invalid
from pinner.owners import require_own

OPTION = "[agent] state_dir"


def lock(state: Path) -> int:
    """Lock the state folder for this process, and return the lock's file descriptor; the kernel ends the lock with it.

    A second server would replace the first one's socket, and resolve the first one's run. Raises Invalid.
    """
    try:
        state.mkdir(parents=True, exist_ok=True)
        require_own(state, OPTION)
        descriptor = os.open(state, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise Invalid(OPTION, str(state), f"a writable folder ({error.strerror})") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Invalid(OPTION, str(state), "a folder that no other running `pinner serve` uses") from None
    return descriptor


def prepare(state: Path, account: pwd.struct_passwd) -> None:
    """Make the state folder and its two parts, and give ``api`` to the API's user.

    Root never opens a file in ``api``. Raises Invalid for a state folder of another user, and for a file that must not
    be given to the API's user.
    """
    if state.stat().st_uid != os.geteuid():
        raise Invalid(OPTION, str(state), "a folder that belongs to root: another user could replace the parts in it")
    state.chmod(0o711)
    for part in ("agent", "api"):
        (state / part).mkdir(mode=0o700, exist_ok=True)
    (state / "agent").chmod(0o700)
    try:
        api = os.open(state / "api", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        raise Invalid(OPTION, str(state / "api"), "a folder, not a link to another place") from None
    try:
        if os.fstat(api).st_uid != account.pw_uid:
            _give(api, state / "api", account)
        os.fchmod(api, 0o700)
    finally:
        os.close(api)


def _give(folder: int, path: Path, account: pwd.struct_passwd) -> None:
    """Give a folder with its files to another user. Until the end it belongs to root, so that nobody changes it."""
    os.fchown(folder, 0, 0)
    os.fchmod(folder, 0o700)
    for name in os.listdir(folder):
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        # A second name of a file may be a file of root in another folder.
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            raise Invalid(OPTION, str(path / name), "a regular file with one name; remove it, or move it away")
        os.chown(name, account.pw_uid, account.pw_gid, dir_fd=folder, follow_symlinks=False)
    os.fchown(folder, account.pw_uid, account.pw_gid)
