"""A system user that exists for one test."""

import os
import pwd
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def temporary_user(prefix: str = "pinner-test") -> Iterator[pwd.struct_passwd]:
    """A system user with a group of its own, without a home folder; it is removed at the end."""
    name = f"{prefix}-{os.getpid()}"
    subprocess.run(["useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", name],
                   check=True, capture_output=True)  # fmt: skip
    try:
        yield pwd.getpwnam(name)
    finally:
        subprocess.run(["userdel", name], check=True, capture_output=True)
