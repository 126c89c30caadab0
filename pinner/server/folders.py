import fcntl
import os
import pwd
import stat
import time
from pathlib import Path

from pinner.model.errors import Invalid
from pinner.owners import require_own

OPTION = "[agent] state_dir"
PID_FILE = "serve.pid"
_NO_LINK = "a folder, not a link to another place"
_RETRY_SECONDS = 0.05


def lock(state: Path) -> int:
    """Returns a descriptor, which holds the lock: a second server would replace the first one's socket, and resolve its
    run. Raises Invalid, which names the holder."""
    try:
        state.mkdir(parents=True, exist_ok=True)
        require_own(state, OPTION)
        return _locked(state, 0.0)
    except OSError as error:
        raise Invalid(OPTION, str(state), f"a writable folder ({error.strerror})") from None


def lock_api(state: Path, *, wait_seconds: float = 0.0) -> int | None:
    """``lock`` for the API's part; None before the agent's first start. A killed agent's API ends a moment later."""
    try:
        return _locked(state / "api", wait_seconds)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Invalid(OPTION, str(state / "api"), f"a folder that this user can write ({error.strerror})") from None


def _locked(folder: Path, wait_seconds: float) -> int:
    if folder.is_symlink():
        raise Invalid(OPTION, str(folder), _NO_LINK)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    deadline = time.monotonic() + wait_seconds
    try:
        while not _lock_now(descriptor):
            if time.monotonic() >= deadline:
                expected = f"a folder that no other running `pinner serve` uses{_holder(folder)}"
                raise Invalid(OPTION, str(folder), expected)
            time.sleep(_RETRY_SECONDS)
        _write_pid(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock_now(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_pid(folder: int) -> None:
    """The lock, not this file, says whether a server runs."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with os.fdopen(os.open(PID_FILE, flags, 0o644, dir_fd=folder), "w") as file:
        file.write(f"{os.getpid()}\n")


def _holder(folder: Path) -> str:
    try:
        return f"; process {int((folder / PID_FILE).read_text('ascii'))} does"
    except (OSError, ValueError):
        return ""


def prepare(state: Path, account: pwd.struct_passwd) -> None:
    """Make the folder and its parts, and give ``api``, where root opens no file, to the API's user. Raises Invalid for
    another user's folder, and a file that must not be given away."""
    if state.stat().st_uid != os.geteuid():
        raise Invalid(OPTION, str(state), "a folder that belongs to root: another user could replace the parts in it")
    state.chmod(0o711)
    for part in ("agent", "api"):
        (state / part).mkdir(mode=0o700, exist_ok=True)
    (state / "agent").chmod(0o700)
    try:
        api = os.open(state / "api", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        raise Invalid(OPTION, str(state / "api"), _NO_LINK) from None
    try:
        if os.fstat(api).st_uid != account.pw_uid:
            _give(api, state / "api", account)
        os.fchmod(api, 0o700)
    finally:
        os.close(api)


def _give(folder: int, path: Path, account: pwd.struct_passwd) -> None:
    """Until the end the folder belongs to root, so that nobody changes it."""
    os.fchown(folder, 0, 0)
    os.fchmod(folder, 0o700)
    for name in os.listdir(folder):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        # A second name of a file may be a file of root in another folder.
        if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
            raise Invalid(OPTION, str(path / name), "a regular file with one name; remove it, or move it away")
        os.chown(name, account.pw_uid, account.pw_gid, dir_fd=folder, follow_symlinks=False)
    os.fchown(folder, account.pw_uid, account.pw_gid)
