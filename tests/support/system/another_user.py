"""Python code that runs with other rights, in a process of its own.

The process imports its modules before it changes its rights: afterwards it cannot read a checkout in a folder that only
its owner may read.
"""

import subprocess
import sys

ID = 65534
"""The user and the group of the other user."""
NO_CONTAINER = "no user namespaces here"
"""The error of a machine that has no user namespaces."""

_GIVE_UP_ROOT = f"import os; os.setgroups([]); os.setgid({ID}); os.setuid({ID})"
_CONTAIN = f"""
import ctypes, os, sys
user, group = os.geteuid(), os.getegid()
if ctypes.CDLL(None, use_errno=True).unshare(0x10000000):  # CLONE_NEWUSER
    sys.exit({NO_CONTAINER!r})
for name, text in (("setgroups", "deny"), ("uid_map", f"0 {{user}} 1"), ("gid_map", f"0 {{group}} 1")):
    with open(f"/proc/self/{{name}}", "w") as file:
        file.write(text)
"""


def run(imports: str, code: str) -> subprocess.CompletedProcess[str]:
    """Run the imports as root, then the code as the other user. Needs root."""
    return _python(imports, _GIVE_UP_ROOT, code)


def run_in_container(imports: str, code: str) -> subprocess.CompletedProcess[str]:
    """Run the imports, then the code as root of a new user namespace.

    The namespace maps this user only, so its root may not read the files of others (user_namespaces(7)).
    """
    return _python(imports, _CONTAIN, code)


def _python(*parts: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", "\n".join(parts)], capture_output=True, text=True, check=False)
