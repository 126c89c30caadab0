"""The API's user attacks a real agent at its socket: no file is written, no mask set that its rules leave alone.

PINNER_FUZZ_MESSAGES is the number of messages (`make fuzz-agent`: 100,000), PINNER_FUZZ_SEED the seed of the attack.
"""

import contextlib
import json
import os
import re
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from spare_user import SpareUser, spare_user
from support.examples import examples
from support.server.hostile_messages import Hostile
from support.system.kernel import THREADS, masks, process, started
from support.system.write_watch import WriteWatch

from pinner import codec
from pinner.agent.socket.client import AgentClient
from pinner.model.guest.guest import Guest
from pinner.model.plan.request import Request
from pinner.planning import planner

MESSAGES = int(os.environ.get("PINNER_FUZZ_MESSAGES") or examples(1500))
SEED = int(os.environ.get("PINNER_FUZZ_SEED", "1"))
SUPPORT = Path(__file__).parents[2] / "support"

pytestmark = [
    pytest.mark.fault(41),
    pytest.mark.needs("root", "watch_files"),
]


@dataclass
class Attacked:
    """The attacked agent."""

    path: Path
    pid: int
    folder: Path

    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/task").iterdir()))

    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def memory_kib(self, of: str = "VmRSS") -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(rf"{of}:\s+(\d+)", status)[1])  # type: ignore[index]


@contextlib.contextmanager
def attacked(folder: Path, user: int, uri: str, movable: list[int]) -> Iterator[Attacked]:
    """The agent in a process of its own."""
    path = folder / "agent.sock"
    command = [sys.executable, SUPPORT / "server/agent_process.py", path, user, folder / "journal", uri, *movable]
    with (folder / "journal/log").open("w") as log:
        running = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        yield Attacked(path, running.pid, folder)
    finally:
        running.communicate(timeout=60)


def as_user(user: SpareUser, work: Callable[[], object]) -> Any:
    """The result of the work, done by another user in a child process."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(read_end)
            user.become()
            with os.fdopen(write_end, "w") as out:
                json.dump(work(), out)
            status = 0
        finally:
            os._exit(status)
    os.close(write_end)
    with os.fdopen(read_end) as told:
        answer = told.read()
    assert os.waitpid(child, 0)[1] == 0
    return json.loads(answer)


def attack(path: Path, count: int, seed: int, ids: list[object], pids: list[int]) -> dict[str, int]:
    """Send the messages from several threads; the number of answers by error code ("" for a result)."""
    client = AgentClient("h1", path)
    outcomes: Counter[str] = Counter()
    numbers = iter(range(count))
    lock = threading.Lock()

    def work(thread: int) -> None:
        hostile = Hostile(seed * 1000 + thread, legitimate(client, pids), ids)
        for sent, _ in enumerate(iter(lambda: _next(lock, numbers), None)):
            if sent and sent % 1000 == 0:
                hostile = Hostile(seed * 1000 + thread + sent, legitimate(client, pids), ids)
            outcome = send(path, hostile.message())
            with lock:
                outcomes[outcome] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return dict(outcomes)


def _next(lock: threading.Lock, numbers: Iterator[int]) -> int | None:
    with lock:
        return next(numbers, None)


def send(path: Path, message: bytes) -> str:
    """The code of the answer to a message."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.connect(str(path))
        peer.settimeout(90)
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                peer.sendall(message)
                peer.shutdown(socket.SHUT_WR)
            while True:
                (length,) = struct.unpack("!I", peer.recv(4, socket.MSG_WAITALL))
                answer = json.loads(peer.recv(length, socket.MSG_WAITALL))
                if "progress" not in answer:
                    return answer.get("error", {}).get("code", "")
        except (ConnectionResetError, struct.error):
            return "closed"


def legitimate(client: AgentClient, pids: list[int]) -> list[dict[str, Any]]:
    """Calls that the agent would carry out as they are."""
    while True:
        try:
            snapshot = client.snapshot(0.0)
            break
        except Exception:
            time.sleep(0.1)
    found: list[dict[str, Any]] = []
    processes = tuple(map(str, pids))
    for request in (Request(processes=processes), Request("numa-local", processes=processes),
                    Request("isolated", isolation="live", processes=processes)):  # fmt: skip
        with contextlib.suppress(Exception):
            plan = planner.plan(snapshot, "s", request)
            run = {"id": "run-1", "kind": "apply", "host": "h1", "plan": plan.id, "actor": "mallory", "origin": "x",
                   "state": "running", "started_at": "2026-01-01T00:00:00Z"}  # fmt: skip
            found.append({"call": "apply", "plan": codec.plain(plan), "run": run})
    undo = {"id": "run-2", "kind": "rollback", "host": "h1", "plan": "plan-1", "actor": "mallory", "origin": "x",
            "state": "running", "started_at": "2026-01-01T00:00:00Z", "undoes": "run-1"}  # fmt: skip
    guest = snapshot.guests[0].uuid if snapshot.guests else "none"
    target = {"kind": "process", "owner": str(pids[0]), "part": 1, "name": "x"}
    actual = [{"tid": pids[0], "started": 1, "cpus": "0"}]
    drift = {"target": target, "expected": "0", "actual": actual, "cause": "unknown"}
    return [
        *found,
        {"call": "rollback", "run": undo},
        {"call": "explain_drifts", "drifts": [drift]},
        {"call": "host_events", "after": 0, "timeout": 0, "process_names": ["sshd"]},
        {"call": "has_guest", "guest": guest},
        {"call": "publish_guest_event", "guest": guest, "detail": "x"},
        {"call": "set_excluded", "guest": guest, "excluded": False},
        {"call": "run", "run": "run-1"},
        {"call": "entries", "run": "run-1"},
        {"call": "audit_head", "centre": {"seq": 1, "hash": "0" * 64}},
        {"call": "audit_records", "after": 0, "limit": 10},
        {"call": "measures", "begin": "2026-01-01T00:00:00Z", "end": "2026-01-01T01:00:00Z", "step": 5, "subject": ""},
        {"call": "blame", "guest": guest, "seconds": 0},
    ]


def elsewhere(paths: set[str], folder: Path) -> set[str]:
    """The files outside the agent's own folder."""
    return {path for path in paths if not path.startswith((f"{folder}/journal/", f"{folder}/agent.sock", "/dev/null"))}


def masks_of_each(pids: list[int]) -> dict[int, set[str]]:
    """The masks of each process's threads. Threads of others may start and end meanwhile."""
    return {pid: set(masks(pid).values()) for pid in pids}


def test_no_message_of_the_apis_user_reaches_beyond_the_agents_rules(
    libvirtd: str, start_guest: Callable[..., Guest], capsys: pytest.CaptureFixture[str]
) -> None:
    guest = start_guest(vcpus=2)
    with contextlib.ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix="pinner-fuzz-")))
        folder.chmod(0o755)
        (folder / "journal").mkdir()
        user = spare_user()
        movable = [undo.enter_context(process(THREADS.format(count=3))) for _ in range(2)]
        others = [undo.enter_context(process(THREADS.format(count=2))) for _ in range(2)]
        os.sched_setaffinity(others[0], [min(os.sched_getaffinity(0))])
        left_alone = [*others, 1]
        before = masks_of_each(left_alone)
        numbers = map(started, (*movable, *others))
        ids = [*movable, *others, 1, 2, os.getpid(), guest.uuid, guest.pid, *numbers]
        with attacked(folder, user.uid, libvirtd, movable) as agent, closing(WriteWatch()) as watch:

            def attack_with(count: int, seed: int) -> dict[str, int]:
                everything = [*ids, agent.pid]
                found: dict[str, int] = as_user(user, lambda: attack(agent.path, count, seed, everything, movable))
                return found

            attack_with(200, SEED + 1)
            at_rest = agent.threads(), agent.descriptors(), agent.memory_kib()
            began = time.monotonic()
            outcomes = attack_with(MESSAGES, SEED)
            seconds = time.monotonic() - began
            most = at_rest[1] + 16  # pooled connections to libvirt and to the journal; more are kept for seconds
            deadline = time.monotonic() + 60
            while (agent.threads() > at_rest[0] or agent.descriptors() > most) and time.monotonic() < deadline:
                time.sleep(0.1)
            after = agent.threads(), agent.descriptors(), agent.memory_kib()
            peak = agent.memory_kib("VmHWM")
        with closing(sqlite3.connect(folder / "journal/journal.sqlite")) as journal:
            runs = Counter(f"{kind} {state}" for kind, state in journal.execute("SELECT kind, state FROM runs"))
        paths = watch.by(agent.pid)
        beyond = elsewhere(paths, folder)
        with capsys.disabled():
            print(
                f"\n{MESSAGES} messages in {seconds:.0f} s, seed {SEED}; answers: {outcomes}; threads {at_rest[0]} -> "
                f"{after[0]}, descriptors {at_rest[1]} -> {after[1]}, memory {at_rest[2]} -> {after[2]}, "
                f"peak {peak} KiB, {len(paths)} files written, {sorted(beyond)} outside the agent's "
                f"folder; runs: {dict(runs)}"
            )
        assert paths
        assert beyond == set()
        assert masks_of_each(left_alone) == before
        assert after[0] <= at_rest[0]
        assert after[1] <= most
        assert peak <= at_rest[2] + 64 * 1024
        assert outcomes.get("internal", 0) == 0
        assert sum(outcomes.values()) == MESSAGES
