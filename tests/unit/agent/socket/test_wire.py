"""The agent's socket: a server and a client in one process, with the in-memory agent behind the server."""

import os
import socket
import stat
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.values import NOON, busy_host, busy_plan, make_change, make_run, sample_snapshot

from pinner.agent.protocol import Agent, Progress
from pinner.agent.socket import wire
from pinner.agent.socket.calls import HANDLERS
from pinner.agent.socket.client import AgentClient
from pinner.agent.socket.server import PROGRESS_SECONDS, AgentServer
from pinner.model.errors import HostUnreachable, NotFound, PinnerError, StalePlan
from pinner.model.plan.plan import Plan
from pinner.model.policy import Drift
from pinner.model.run.journal import Entry, Run

PLAN = busy_plan("plan-1", "s", (make_change(100, threads=2), make_change(110, threads=2)))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[HostedAgent]:
    agent = HostedAgent(tmp_path / "journal", busy_host(), lambda: NOON)
    yield agent
    agent.journal.close()


@pytest.fixture
def path(tmp_path: Path, agent: HostedAgent) -> Iterator[Path]:
    server = AgentServer(agent, tmp_path / "agent.sock", user=-1)
    server.start()
    yield tmp_path / "agent.sock"
    server.close()


@pytest.fixture
def client(path: Path) -> AgentClient:
    return AgentClient("h1", path)


def raw(path: Path, text: bytes) -> dict[str, object]:
    """The server's answer to these bytes."""
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.connect(str(path))
    with peer:
        peer.sendall(struct.pack("!I", len(text)) + text)
        return wire.receive(peer)


def test_the_server_answers_every_method_of_agent() -> None:
    assert set(HANDLERS) == {name for name in vars(Agent) if not name.startswith("_")}


def test_values_arrive_as_they_were_sent(client: AgentClient, agent: HostedAgent) -> None:
    assert client.snapshot(1.5) == agent.snapshot(1.5)


def test_an_apply_reports_progress_and_returns_its_run(client: AgentClient, agent: HostedAgent) -> None:
    progress = []
    run = client.apply(PLAN, make_run(), lambda entry, total: progress.append((entry.seq, entry.state, total)))
    assert run.state == "applied"
    assert progress == [(1, "intent", 2), (1, "done", 2), (2, "done", 2)]
    assert client.run(run.id) == agent.run(run.id) == run
    assert client.entries(run.id) == agent.entries(run.id)
    rollback = client.rollback(make_run("run-2", kind="rollback", undoes=run.id), lambda *_: None)
    assert rollback.state == "rolled_back"


def test_an_error_arrives_with_its_type_and_details(client: AgentClient, agent: HostedAgent) -> None:
    agent.host.refusal = StalePlan("plan-1", ("process 100 is gone",))
    with pytest.raises(StalePlan) as refused:
        client.apply(PLAN, make_run(), lambda *_: None)
    assert refused.value.details == {"plan": "plan-1", "moved": ["process 100 is gone"], "targets": []}
    assert str(refused.value) == str(agent.host.refusal)
    with pytest.raises(NotFound, match="run-9"):
        client.run("run-9")


def test_an_unexpected_failure_is_logged_and_its_details_are_not_sent(
    client: AgentClient, agent: HostedAgent, caplog: pytest.LogCaptureFixture
) -> None:
    agent.host.break_at, agent.host.broken = 2, ZeroDivisionError("secret")
    with pytest.raises(PinnerError) as failed:
        client.apply(PLAN, make_run(), lambda *_: None)
    assert "secret" not in str(failed.value)
    assert "ZeroDivisionError: secret" in caplog.text


def test_host_events_drift_and_exclusions_go_through_the_socket(client: AgentClient, agent: HostedAgent) -> None:
    agent.event_queue.publish("guest-started", "uuid-1", "booted")
    (first,) = client.host_events(0, 5.0, ("sshd",))
    assert (first.kind, first.subject, first.detail, first.at) == ("guest-started", "uuid-1", "booted", NOON)
    assert agent.event_queue.watched == {"sshd"}
    assert client.host_events(first.seq, 0.01, ()) == ()

    agent.host.cause = "balancer"
    change = make_change(100)
    restarted = Drift(change.target, change.after, change.before, "restarted")
    assert [drift.cause for drift in client.explain_drifts((restarted, replace(restarted, cause="unknown")))] == [
        "restarted",
        "balancer",
    ]
    agent.host.taken = sample_snapshot()
    guest = agent.host.taken.guests[0].uuid
    assert [client.has_guest(each) for each in (guest, "no-such-guest")] == [True, False]
    client.publish_guest_event(guest, "rebooted")
    (second,) = client.host_events(first.seq, 0.0, ())
    assert (second.kind, second.subject, second.detail) == ("guest-event", guest, "rebooted")
    client.publish_policy_set()
    assert [event.kind for event in client.host_events(second.seq, 0.0, ())] == ["policy-set"]
    client.set_excluded("uuid-1", excluded=True)
    assert agent.host.marked == {"uuid-1"}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b'{"call": "shutdown"}', "invalid"),
        (b'{"call": "apply", "plan": {}, "run": {}}', "invalid"),
        (b'{"call": "snapshot"}', "invalid"),
        (b'{"call": ["snapshot"]}', "invalid"),
        (b'{"call": "snapshot", "sample_seconds": "NaN"}', "invalid"),
        (b'{"call": "snapshot", "sample_seconds": NaN}', "invalid"),
        (b'{"call": "snapshot", "sample_seconds": 1e400}', "invalid"),
        (b'{"call": "snapshot", "sample_seconds": 301}', "invalid"),
        (b'{"call": "snapshot", "sample_seconds": true}', "invalid"),
        (b'{"call": "host_events", "after": 0, "timeout": 1e8, "process_names": []}', "invalid"),
        (b'{"call": "host_events", "after": 0, "timeout": -1, "process_names": []}', "invalid"),
        (b'{"call": "host_events", "after": "x", "timeout": 1, "process_names": []}', "invalid"),
        (b'{"call": "host_events", "after": 0, "timeout": 1, "process_names": {}}', "invalid"),
        (b'{"call": "host_events", "after": 0, "timeout": 1, "process_names": ""}', "invalid"),
        (b'{"call": "host_events", "after": 0, "timeout": 1, "process_names": ["\\u0000"]}', "invalid"),
        (b'{"call": "run", "run": "../../etc/passwd"}', "invalid"),
        (b'{"call": "entries", "run": {"$gt": ""}}', "invalid"),
        (b'{"call": "has_guest", "guest": "\\u0000"}', "invalid"),
        (b'{"call": "publish_guest_event", "guest": "g", "detail": 7}', "invalid"),
        (b'{"call": "set_excluded", "guest": "g", "excluded": "perhaps"}', "invalid"),
        (b'{"call": "explain_drifts", "drifts": "all"}', "invalid"),
        (b'{"call": "run", "run": "\\ud800"}', "invalid"),
        (b"not json", "invalid"),
        (b"\xff\xfe", "invalid"),
        (b"", "invalid"),
        (b"[" * 100_000, "invalid"),
        (b'{"call": ' * 5000 + b"1" + b"}" * 5000, "invalid"),
        (b'["a", "list"]', "invalid"),
    ],
)
def test_a_wrong_call_gets_an_error_and_the_server_continues(
    path: Path, client: AgentClient, text: bytes, code: str
) -> None:
    answer = raw(path, text)
    assert answer["error"]["code"] == code  # type: ignore[index]
    assert client.snapshot(0).host == "h1"


def test_a_caller_that_disconnects_does_not_stop_its_run(path: Path, client: AgentClient, agent: HostedAgent) -> None:
    agent.host.gate = threading.Semaphore(0)
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    peer.connect(str(path))
    with peer:
        wire.send(peer, call="apply", plan=PLAN, run=make_run())
        wire.receive(peer)
    agent.host.gate.release(100)
    while client.run("run-1").state == "running":
        pass
    assert client.run("run-1").state == "applied"


class _LongRuns:
    """An agent whose runs report progress of a process with 8,000 threads: one message is larger than the buffer of a
    connection. Only ``apply`` is called."""

    def apply(self, _plan: Plan, run: Run, progress: Progress) -> Run:
        for seq in range(1, 4):
            progress(Entry(run.id, seq, make_change(100, threads=8000), "done", NOON), 3)
        return replace(run, state="applied", ended_at=NOON)


def test_a_caller_that_stops_reading_in_the_middle_of_a_message_gets_its_answer(tmp_path: Path) -> None:
    """The caller misses progress."""
    server = AgentServer(_LongRuns(), tmp_path / "s", os.geteuid())  # type: ignore[arg-type]
    server.start()
    heard = []

    def stop_reading(entry: Entry, _total: int) -> None:
        heard.append(entry.seq)
        if len(heard) == 1:
            time.sleep(2 * PROGRESS_SECONDS)

    try:
        assert AgentClient("h1", tmp_path / "s").apply(PLAN, make_run(), stop_reading).state == "applied"
    finally:
        server.close()
    assert heard == [1, 2]


def test_a_message_that_was_cut_off_goes_on_before_a_sign_of_life() -> None:
    """The caller reads again when the run has no progress to report."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        line = wire.Line(ours)
        line.offer(0.0, progress="x" * 1_000_000)
        line.offer(0.0, progress="left out")
        found: list[dict[str, object]] = []
        reading = threading.Thread(target=lambda: found.extend(wire.receive(theirs, seconds=10) for _ in range(3)))
        reading.start()
        while len(found) < 2:
            line.pulse()
        line.send(1.0, result=1)
        reading.join()
    assert [next(iter(message)) for message in found[:2]] == ["progress", "alive"]


def test_a_caller_that_never_reads_is_waited_for_once_and_for_its_answer() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        line = wire.Line(ours)
        line.offer(0.1, progress="x" * 1_000_000)
        began = time.monotonic()
        for _ in range(100):
            line.offer(5.0, progress="left out")
        assert time.monotonic() - began < 50 * 5.0, "each offer waited"
        with pytest.raises(wire.Overdue):
            line.send(0.1, result=1)


def test_only_its_user_may_open_the_socket(path: Path) -> None:
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_server_that_has_ended_is_unreachable(tmp_path: Path, agent: HostedAgent) -> None:
    server = AgentServer(agent, tmp_path / "agent.sock", user=-1)
    server.start()
    server.close()
    assert not (tmp_path / "agent.sock").exists()
    with pytest.raises(HostUnreachable, match="h1"):
        AgentClient("h1", tmp_path / "agent.sock").snapshot(0)
