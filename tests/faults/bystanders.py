"""Processes of a scenario that no request names: children of daemons, and idle processes of an unprivileged user."""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress

from support.server.accounts import idle_user
from support.server.policy_host import Daemon, wait_until
from support.system.kernel import allowed, started

_SECONDS = 10.0


class Bystanders:
    """The children and the idle processes of one scenario."""

    def __init__(self) -> None:
        self._children: dict[tuple[int, int], str] = {}
        self._claims: dict[int, subprocess.Popen[bytes]] = {}

    def add_child(self, daemon: Daemon) -> None:
        """Have the daemon start a child process, which outlives it."""
        pid = daemon.fork()
        self._children[pid, started(pid)] = daemon.name

    def children(self) -> Iterator[tuple[str, int, str]]:
        """Each running child: the name of its daemon, its process id and its mask."""
        for (pid, since), name in self._children.items():
            with suppress(OSError):
                if started(pid) == since:
                    yield name, pid, allowed(pid)

    def add_claim(self, cpu: int) -> None:
        """Pin an idle process of an unprivileged user to the CPU."""
        if cpu not in self._claims:
            user = idle_user()
            command = ["taskset", "--cpu-list", str(cpu), "sleep", "infinity"]
            self._claims[cpu] = subprocess.Popen(command, user=user.uid, group=user.gid, extra_groups=[])
            assert wait_until(lambda: allowed(self._claims[cpu].pid) == str(cpu), _SECONDS) < _SECONDS

    def moved_claims(self) -> Iterator[str]:
        """A sentence about each idle process that is not on its CPU."""
        for cpu, claim in self._claims.items():
            if (mask := allowed(claim.pid)) != str(cpu):
                yield f"an idle process that its owner pinned to CPU {cpu} is on {mask}"

    def close(self) -> None:
        """End all of them."""
        for _, pid, _ in list(self.children()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for claim in self._claims.values():
            claim.kill()
            claim.wait()
