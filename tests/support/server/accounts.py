"""The users of tests that root starts. They have no account: another run cannot remove what does not exist."""

import os
import pwd
import subprocess
import sys
from functools import cache

from spare_user import SpareUser, spare_user
from support import needs

from pinner.server.installation import keep_readable
from pinner.server.privileges import numbered


@cache
def api_user() -> SpareUser:
    """The user as which `pinner serve` runs its API."""
    return spare_user()


@cache
def idle_user() -> SpareUser:
    """The user of idle processes."""
    return spare_user(1)


def api_account() -> pwd.struct_passwd:
    """The same user as a server sees it."""
    return numbered(api_user().uid, api_user().gid)


WITHOUT_NOVA = "[nova]\nignore_nova_conf = true\n"
"""The lines of configuration for a host without Nova: a nova-compute in /proc belongs to another test."""


QUICK_SAMPLES = "[host]\nsample_seconds = 0.1\n"
"""The lines of configuration for samples of CPU use that do not take five seconds."""


def api_config() -> str:
    """The lines of configuration of a test's server: the API's user, where root starts it, no Nova, quick samples."""
    return WITHOUT_NOVA + QUICK_SAMPLES + (api_user().config if os.geteuid() == 0 else "")


def require_readable_checkout() -> None:
    """Leave the test out where a program that the API's user starts cannot be shown this checkout."""
    if not _reads_checkout():
        needs.require("mounts")


@cache
def _reads_checkout() -> bool:
    user = api_user()
    command = [sys.executable, "-c", "import pinner.cli.main"]
    try:
        done = subprocess.run(command, user=user.uid, group=user.gid, extra_groups=[], capture_output=True)
    except OSError:
        return False
    return not done.returncode


def become(account: pwd.struct_passwd) -> None:
    """Give up root for the account in a new child process, which still reads this checkout, wherever it lies."""
    keep_readable(account)
    os.setgroups([])
    os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
    os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
