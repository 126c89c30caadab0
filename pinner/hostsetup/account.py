"""The system user and group of the API."""

import grp
import pwd
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from pinner.hostsetup.layout import ACCOUNT
from pinner.model.errors import PinnerError

_COMMENT = "pinner API"
"""As in sysusers.d/pinner.conf; remove-host removes no user with another one."""


def exists() -> bool:
    return find() is not None and _has_group()


def find() -> pwd.struct_passwd | None:
    with suppress(KeyError):
        return pwd.getpwnam(ACCOUNT)
    return None


def is_own() -> bool:
    """Whether setup-host made the user."""
    user = find()
    return user is not None and user.pw_gecos.split(",")[0] == _COMMENT


def create(sysusers: Path) -> None:
    """``sysusers`` is a sysusers.d file. Raises PinnerError."""
    if program := shutil.which("systemd-sysusers"):
        run(program, str(sysusers))
        return
    if not _has_group():
        run("groupadd", "--system", ACCOUNT)
    if find() is None:
        run("useradd", "--system", "--gid", ACCOUNT, "--no-create-home", "--home-dir", "/",
            "--shell", "/usr/sbin/nologin", "--comment", _COMMENT, ACCOUNT)  # fmt: skip


def remove() -> None:
    """Raises PinnerError."""
    if find() is not None:
        run("userdel", ACCOUNT)
    if _has_group():
        run("groupdel", ACCOUNT)


def run(*command: str) -> None:
    """Raises PinnerError with the program's error message."""
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        why = (getattr(error, "stderr", "") or str(error)).strip()
        raise PinnerError(f"{' '.join(command)} failed: {why}") from None


def _has_group() -> bool:
    with suppress(KeyError):
        return bool(grp.getgrnam(ACCOUNT))
    return False
