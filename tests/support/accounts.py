"""The temporary system user as which `pinner serve` runs its API in tests that root starts."""

import atexit
import os
import pwd
from contextlib import ExitStack
from functools import cache

from temporary_account import Account, temporary_account

from pinner.server.installation import keep_readable


@cache
def api_account() -> Account:
    """The account of the tests in this process, which removes it when it ends. Needs root."""
    undo = ExitStack()
    atexit.register(undo.close)
    return undo.enter_context(temporary_account())


@cache
def idle_account() -> Account:
    """The account of idle processes in tests of this process, which removes it when it ends. Needs root."""
    undo = ExitStack()
    atexit.register(undo.close)
    return undo.enter_context(temporary_account())


def api_config() -> str:
    """The lines of configuration that name the API's user; empty where the server is not started by root."""
    return api_account().config if os.geteuid() == 0 else ""


def become(account: pwd.struct_passwd) -> None:
    """Give up root for the account in a new child process, which still reads this checkout, wherever it lies."""
    keep_readable(account)
    os.setgroups([])
    os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
    os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)
