"""However a process behaves at the socket, the agent serves the others."""

import contextlib
import json
import os
import resource
import signal
import socket
import struct
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.fakes.empty_machine import agent_of
from support.fakes.hosted_agent import HostedAgent
from support.fakes.in_memory_host import InMemoryHost
from support.values import NOON, busy_plan, busy_process, make_change, make_plan, make_run, make_snapshot

from pinner.agent.socket import peers, server, wire
from pinner.agent.socket.client import AgentClient
from pinner.agent.socket.server import AgentServer
from pinner.model.errors import (
    Busy,
    NotPermitted,
    PinnerError,
)
from pinner.store.journal.journal import StoredJournal

pytestmark = pytest.mark.fault(41)

SECONDS = 0.3
"""How long a caller may take to send its call in these tests."""


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[HostedAgent]:
    agent = HostedAgent(tmp_path / "journal", make_snapshot(), lambda: NOON)
    yield agent
    agent.journal.close()


SERVERS: weakref.WeakSet[AgentServer] = weakref.WeakSet()


def server_of(*arguments: Any, **more: Any) -> AgentServer:
    SERVERS.add(made := AgentServer(*arguments, **more))
    return made


@pytest.fixture
def path(tmp_path: Path, agent: HostedAgent) -> Iterator[Path]:
    serving = server_of(agent, tmp_path / "agent.sock", user=-1, request_seconds=SECONDS)
    serving.start()
    yield tmp_path / "agent.sock"
    agent.event_queue.close()
    serving.close()


@pytest.fixture
def patient(tmp_path: Path, agent: HostedAgent) -> Iterator[Path]:
    """A server that waits for a request however long its callers take to be there all at once."""
    serving = server_of(agent, tmp_path / "patient.sock", user=-1, request_seconds=600.0)
    serving.start()
    yield tmp_path / "patient.sock"
    agent.event_queue.close()
    serving.close()


@contextmanager
def connected(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.connect(str(path))
        peer.settimeout(20)
        yield peer


def ask(peer: socket.socket, **call: object) -> None:
    body = json.dumps(call).encode()
    peer.sendall(struct.pack("!I", len(body)) + body)


def calls_of() -> int:
    """How many calls the servers of this module answer now."""
    return sum(each._workers.busy for each in SERVERS)


def wait_until(holds: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_message_of_more_values_than_the_bound_is_refused(patient: Path) -> None:
    """Each value takes many times its bytes."""
    with connected(patient) as peer:
        ask(peer, call="health", values=[0] * wire.MAX_VALUES)
        assert f"at most {wire.MAX_VALUES} values" in str(wire.receive(peer))


WAIT = {"call": "host_events", "after": 0, "timeout": 60, "process_names": []}


def test_a_caller_that_sends_nothing_or_too_slowly_is_disconnected(path: Path) -> None:
    began = time.monotonic()
    with connected(path) as silent, connected(path) as slow:
        slow.sendall(struct.pack("!I", 1000) + b'{"call"')
        while time.monotonic() < began + 2 * SECONDS:
            with contextlib.suppress(OSError):
                slow.sendall(b" ")
            time.sleep(0.02)
        assert silent.recv(1) == b""
        # The kernel resets a connection that is closed before all bytes of the caller were read.
        with contextlib.suppress(ConnectionResetError):
            assert slow.recv(1) == b""
    wait_until(lambda: calls_of() == 0)


@pytest.mark.parametrize("length", [wire.MAX_REQUEST + 1, 0xFFFFFFFF])
def test_a_message_that_is_too_long_is_refused_before_it_is_read(path: Path, length: int) -> None:
    with connected(path) as peer:
        peer.sendall(struct.pack("!I", length) + b"{")
        answer = wire.receive(peer)
    assert (answer["error"]["code"], answer["error"]["details"]["value"]) == ("invalid", length)


def test_few_long_messages_are_in_memory_at_once(path: Path) -> None:
    """The values of a message of 32 MiB took 1 GiB, and 64 callers were answered at once."""
    body = json.dumps(WAIT).encode() + b" " * server.LARGE_BYTES
    with contextlib.ExitStack() as opened:
        peers = [opened.enter_context(connected(path)) for _ in range(server.MAX_LARGE_CALLS + 1)]
        for peer in peers[:-1]:
            peer.sendall(struct.pack("!I", len(body)) + body)
        wait_until(lambda: calls_of() == len(peers))
        peers[-1].sendall(struct.pack("!I", len(body)))
        assert wire.receive(peers[-1])["error"]["code"] == "busy"
        assert AgentClient("h1", path).snapshot(0.0).host == "h1"
    wait_until(lambda: calls_of() == 0)
    with connected(path) as peer:
        body = b'{"call": "topology"}' + b" " * server.LARGE_BYTES
        peer.sendall(struct.pack("!I", len(body)) + body)
        assert "result" in wire.receive(peer)


def test_300_waits_leave_neither_300_threads_nor_any_after_their_callers_left(path: Path) -> None:
    with contextlib.ExitStack() as opened:
        peers = []
        for _ in range(300):
            peers.append(opened.enter_context(connected(path)))
            with contextlib.suppress(OSError):
                ask(peers[-1], **WAIT)
        wait_until(lambda: calls_of() <= server.MAX_SAME_CALLS["host_events"])
        refused = 0
        for peer in peers:
            peer.settimeout(0.05)
            with contextlib.suppress(EOFError):
                message = json.loads(_answer_of(peer))
                assert message["error"]["code"] == "busy"
                refused += 1
        assert refused == 300 - server.MAX_SAME_CALLS["host_events"]
        # Other calls are answered meanwhile.
        assert AgentClient("h1", path).snapshot(0.0).host == "h1"
    wait_until(lambda: calls_of() == 0)


def _answer_of(peer: socket.socket) -> bytes:
    try:
        while True:
            (length,) = struct.unpack("!I", peer.recv(4, socket.MSG_WAITALL))
            if (answer := peer.recv(length, socket.MSG_WAITALL)) not in wire.ALIVE:
                return answer
    except (OSError, struct.error):
        raise EOFError from None


def test_more_callers_than_threads_are_told_at_once_that_the_agent_is_busy(patient: Path) -> None:
    with contextlib.ExitStack() as opened:
        for _ in range(server.MAX_CALLS):
            opened.enter_context(connected(patient))
        wait_until(lambda: calls_of() == server.MAX_CALLS, 60)
        with pytest.raises(Busy, match="64 calls already"):
            AgentClient("h1", patient).run("run-1")
    wait_until(lambda: calls_of() == 0, 60)
    assert AgentClient("h1", patient).snapshot(0.0).host == "h1"


def test_a_sample_ends_when_its_caller_disconnects(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "pinner.agent.socket.server")
    with closing(StoredJournal(tmp_path / "journal")) as journal:
        agent = agent_of(journal, InMemoryHost(), _sampled, _now)  # type: ignore[arg-type]
        serving = server_of(agent, tmp_path / "agent.sock", user=-1)
        serving.start()
        with connected(tmp_path / "agent.sock") as peer:
            ask(peer, call="snapshot", sample_seconds=300)
            wait_until(lambda: calls_of() == 1)
            time.sleep(0.2)
        wait_until(lambda: calls_of() == 0, 60)
        serving.close()
    (left,) = (record.getMessage() for record in caplog.records if "no answer" in record.getMessage())
    assert left.endswith(" got no answer: it has disconnected")


def _sampled(seconds: float) -> object:
    from pinner.agent.socket.peers import sleep

    sleep(seconds)
    return make_snapshot()


def _now() -> datetime:
    return datetime.now(UTC)


def test_a_server_without_file_descriptors_serves_again_once_it_has_some(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The API holds connections open until the agent has no descriptor left (EMFILE at accept)."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as opened:
        # It waits for an event. A connection without a call would be closed after SECONDS, and free its descriptor.
        ask(opened.enter_context(connected(path)), **WAIT)
        wait_until(lambda: calls_of() == 1)
        lowest = os.dup(0)
        os.close(lowest)
        late = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 1, before[1]))
            late.connect(str(path))
            ask(late, call="run", run="run-9")
            wait_until(lambda: "cannot be accepted" in caplog.text)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        late.settimeout(10)
        assert wire.receive(late)["error"]["code"] == "not_found"
    assert AgentClient("h1", path).snapshot(0.0).host == "h1"


def test_a_caller_that_does_not_read_does_not_stop_its_run(
    open_path: Path, agent: HostedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "PROGRESS_SECONDS", 0.1)
    crowd = tuple(busy_process(pid, "b" * 4000) for pid in range(100, 300, 2))  # more than a socket keeps
    agent.host.taken = replace(agent.host.taken, processes=crowd)
    plan = busy_plan("plan-1", "s", (make_change(pid, threads=2) for pid in range(100, 300, 2)))
    with connected(open_path) as peer:
        wire.send(peer, call="apply", plan=plan, run=make_run())
        client = AgentClient("h1", open_path)
        wait_until(lambda: _state(client) == "applied", 60)


def _state(client: AgentClient) -> str:
    try:
        return client.run("run-1").state
    except PinnerError:
        return ""


@pytest.fixture
def open_path(agent: HostedAgent) -> Iterator[Path]:
    """The path of a socket in a folder that every user may enter."""
    with tempfile.TemporaryDirectory(prefix="pinner-test-") as folder:
        Path(folder).chmod(0o755)
        serving = server_of(agent, Path(folder) / "agent.sock", user=-1)
        serving.start()
        yield Path(folder) / "agent.sock"
        serving.close()


@pytest.mark.needs("root")
def test_another_user_is_not_answered_although_the_socket_let_it_in(
    open_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The mode of the socket keeps other users out; a caller with an inherited descriptor passes it."""
    open_path.chmod(0o666)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        os.setgroups([])
        os.setresgid(12345, 12345, 12345)
        os.setresuid(12345, 12345, 12345)
        try:
            AgentClient("h1", open_path).snapshot(0.0)
            os.write(write_end, b"answered")
        except BaseException as error:
            os.write(write_end, type(error).__name__.encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as told:
        assert told.read() == NotPermitted.__name__
    os.waitpid(child, 0)
    wait_until(lambda: "uid 12345" in caplog.text)


def test_the_server_names_the_caller_whatever_the_message_claims(path: Path, agent: HostedAgent) -> None:
    client = AgentClient("h1", path)
    client.apply(make_plan(), make_run(peer="root (uid 0), pid 1", actor="the king"), lambda *_: None)
    caller = agent.run("run-1").peer
    assert caller.endswith(f"(uid {os.geteuid()}), pid {os.getpid()}")
    client.set_excluded("guest", excluded=True)
    records = agent.trail.records(1, 100)
    assert {record.peer for record in records} == {caller}
    assert {record.actor for record in records} == {"the king", ""}


@pytest.mark.parametrize(
    ("call", "arguments"),
    [
        ("audit_head", {"centre": 7}),
        ("audit_head", {"centre": {"seq": "x", "hash": ""}}),
        ("audit_head", {"centre": {"seq": 2**53, "hash": "0" * 64}}),
        ("audit_head", {"centre": {"seq": 1, "hash": "0" * 65}}),
        ("audit_records", {}),
        ("audit_records", {"after": -1, "limit": 1}),
        ("audit_records", {"after": 2**64, "limit": 1}),
        ("audit_records", {"after": 0, "limit": 0}),
        ("audit_records", {"after": 0, "limit": 10**9}),
        ("audit_records", {"after": 0, "limit": 1.5}),
    ],
)
def test_wrong_arguments_of_the_trail(path: Path, call: str, arguments: dict[str, object]) -> None:
    with connected(path) as peer:
        ask(peer, call=call, **arguments)
        assert wire.receive(peer)["error"]["code"] == "invalid"


@pytest.mark.fault(69)
def test_mute_connections_of_the_apis_user_leave_places_for_root(
    tmp_path: Path, agent: HostedAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = 54321
    users = iter([user] * server.MAX_CALLS)
    monkeypatch.setattr(server.peers, "of", lambda _: peers.Peer(1, next(users, 0)))
    serving = server_of(agent, tmp_path / "agent.sock", user=user if os.geteuid() == 0 else os.geteuid())
    serving._users.add(user)
    serving.start()
    try:
        with contextlib.ExitStack() as stack:
            mute = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(server.MAX_CALLS)]
            for each in mute:
                each.connect(str(tmp_path / "agent.sock"))
            assert AgentClient("h1", tmp_path / "agent.sock").snapshot(0.0).host == "h1"
            taken = serving._workers.busy
            assert taken in (server.MAX_CALLS - server.OWN_CALLS, server.MAX_CALLS - server.OWN_CALLS + 1)
    finally:
        serving.close()
