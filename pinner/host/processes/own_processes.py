"""pinner's own processes, which no plan moves."""

import os
import re

from pinner.host.kernel import files


class OwnProcesses:
    """The ids of this process and of every process of the API's user, which no other program uses."""

    def __init__(self, user: int) -> None:
        self._user = user

    def __contains__(self, pid: object) -> bool:
        return pid == os.getpid() or self._user_of(pid) == self._user

    @staticmethod
    def _user_of(pid: object) -> int | None:
        """The real user id: the owner of /proc/PID is root after setuid(2)."""
        try:
            status = files.read(f"/proc/{pid}/status")
        except OSError:
            return None
        found = re.search(rb"^Uid:\s+(\d+)", status, re.MULTILINE)
        return int(found[1]) if found else None
