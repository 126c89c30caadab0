"""An agent with its server in a process of its own, for a test that attacks it.

    python agent_process.py SOCKET USER_ID FOLDER LIBVIRT_URI PID...

The agent may move the processes with these ids and the guests of that libvirtd. All other processes of the machine
count as pinner's own, so that the attack cannot move what does not belong to the test.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path

from pinner.agent.host_event_queue import HostEventQueue
from pinner.agent.local import LocalAgent
from pinner.agent.recorder import Recorder
from pinner.agent.socket import wire
from pinner.agent.socket.peers import sleep
from pinner.agent.socket.server import AgentServer
from pinner.agent.trail.signing import SigningKey
from pinner.agent.trail.trail import AgentTrailFile
from pinner.host.inventory import SnapshotInputs, take_snapshot
from pinner.host.kernel import files
from pinner.host.live import LiveHost
from pinner.host.virt.libvirt import Libvirt
from pinner.model.outcome.measures import HOST, Measured
from pinner.model.snapshot import Snapshot
from pinner.store.history import HistoryFiles
from pinner.store.journal.journal import StoredJournal

REQUEST_SECONDS = 1.0
"""How long a caller may take to send its call: a busy machine lets an honest one wait for its CPU for longer."""
LIBVIRT_SECONDS = 10.0
"""How long a call of libvirt may take."""
wire.PULSE_SECONDS = 0.2  # ten times as often as usual: a busy machine delays each of them


def now() -> datetime:
    return datetime.now(UTC)


def main(path: str, user: str, folder: str, uri: str, *pids: str) -> None:
    movable = frozenset(map(int, pids))
    libvirt, journal = Libvirt(uri, LIBVIRT_SECONDS), StoredJournal(Path(folder))

    def take(sample_seconds: float) -> Snapshot:
        others = frozenset(map(int, files.numbers("/proc"))) - movable
        return take_snapshot(
            Path("/"), "h1", libvirt, sample_seconds=sample_seconds, now=now,
            inputs=SnapshotInputs(own=others, placed=journal.placed(), pins=journal.recorded_pins, sleep=sleep),
        )  # fmt: skip

    trail = AgentTrailFile("h1", journal.chain, SigningKey(Path(folder) / "signing.key"), now)
    kept = HistoryFiles(Path(folder) / "history")
    kept.write([Measured(HOST, "", {})], now())
    agent = LocalAgent(
        take, LiveHost(libvirt), journal, now, HostEventQueue(now), trail, name="h1",
        histories=Recorder(lambda: (), kept, now).measures,
    )  # fmt: skip
    server = AgentServer(agent, Path(path), int(user), request_seconds=REQUEST_SECONDS)
    server.start()
    print("ready", flush=True)
    sys.stdin.read()
    agent.close()
    server.close()
    journal.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
