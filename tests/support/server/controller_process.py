"""A controller of its own process that applies a plan, and stops itself (SIGSTOP) on the way.

    python controller_process.py DATABASE SOCKET PLAN before|during

It stops before it calls the agent, or when the agent has reported the first progress. It prints the end of the run, or
the code of the refusal.
"""

import signal
import sys
import threading
import uuid
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from pinner.agent.protocol import Progress
from pinner.agent.socket.client import AgentClient
from pinner.model.errors import PinnerError
from pinner.model.plan.plan import Plan
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions, Entry, Run
from pinner.service.local import ServiceParts
from pinner.store.repositories import open_store


class StoppingClient(AgentClient):
    """A client whose process stops at one point of each apply."""

    when = "before"

    def apply(self, plan: Plan, run: Run, progress: Progress) -> Run:
        """See Agent."""
        stopped = False

        def stop() -> None:
            nonlocal stopped
            if not stopped:
                stopped = True
                # To this thread: as a signal to the process, it may reach another thread first, and this one goes on.
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

        def stopping(entry: Entry, total: int) -> None:
            progress(entry, total)
            stop()

        if self.when == "before":
            stop()
        return super().apply(plan, run, stopping)


def main(database: str, path: str, plan: str, when: str) -> None:
    client = StoppingClient("h1", Path(path), silence=600.0)  # the stop counts as silence of the agent, too
    client.when = when
    with (
        open_store(database) as store,
        closing(
            ServiceParts({"h1": client}, store, lambda: datetime.now(UTC), lambda: uuid.uuid4().hex[:12], 0.0)
        ) as parts,
    ):
        try:
            run = parts.service.apply(plan, ApplyOptions(), Caller("ann", "cli", "req-stopped"))
            *_, last = parts.service.follow(run.id)
            print(last.run.state, flush=True)
        except PinnerError as error:
            print(error.code, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
