"""Python code that runs as another user, in a process of its own. Needs root."""

import subprocess
import sys

ID = 65534
"""The user and the group of the process."""


def run(imports: str, code: str) -> subprocess.CompletedProcess[str]:
    """Run the imports as root, then the code as the other user.

    The other user cannot import pinner where the checkout is in a folder that only its owner may read.
    """
    give_up_root = f"import os; os.setgroups([]); os.setgid({ID}); os.setuid({ID})"
    return subprocess.run(
        [sys.executable, "-c", "\n".join((imports, give_up_root, code))], capture_output=True, text=True, check=False
    )
