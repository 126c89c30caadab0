"""The threads that answer the agent's callers, and that the agent goes on where no other thread can be started."""

import os
import threading
import time
from contextlib import closing, suppress

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.values import NOON, make_snapshot

from pinner.agent.socket import server
from pinner.agent.socket.client import AgentClient
from pinner.agent.socket.peers import Peer
from pinner.agent.socket.server import MAX_CALLS, AgentServer, Workers
from pinner.model.errors import PinnerError

SECONDS = 20.0


@pytest.fixture
def workers():
    made = Workers(2, "worker")
    made.start()
    yield made
    assert made.end(SECONDS)


def done_by(workers):
    """The thread that does the next job, after it has become idle again."""
    found, done = [], threading.Event()

    def job():
        found.append(threading.get_ident())
        done.set()

    assert workers.begin(job)
    assert done.wait(SECONDS)
    wait_for_idle(workers)
    return found[0]


def wait_for_idle(workers):
    while workers.busy:
        time.sleep(0.001)


def test_each_thread_has_one_job_and_no_job_waits_for_a_thread(workers):
    go = threading.Event()
    assert workers.begin(lambda: go.wait(SECONDS) and None)
    assert workers.begin(lambda: go.wait(SECONDS) and None)
    assert not workers.begin(go.set)
    assert workers.busy == 2
    go.set()


def test_the_thread_that_was_busy_last_gets_the_next_job(workers):
    assert len({done_by(workers) for _ in range(5)}) == 1


def test_a_job_that_fails_costs_no_thread(workers, caplog):
    def fail():
        raise MemoryError

    for _ in range(3):
        assert workers.begin(fail)
        wait_for_idle(workers)
    done_by(workers)
    assert "a job failed" in caplog.text
    assert workers.busy == 0


def test_the_end_waits_for_jobs_but_not_for_ever():
    workers, go = Workers(2, "worker"), threading.Event()
    workers.start()
    workers.begin(lambda: go.wait(SECONDS) and None)
    assert not workers.end(0.0)
    go.set()
    assert workers.end(SECONDS)


@pytest.fixture
def agent(tmp_path):
    agent = HostedAgent(tmp_path / "journal", make_snapshot(), lambda: NOON)
    with closing(agent.journal):
        yield agent


@pytest.fixture
def serving(agent, tmp_path):
    with closing(AgentServer(agent, tmp_path / "agent.sock", user=os.geteuid())) as serving:
        serving.start()
        yield serving
        agent.event_queue.close()


@pytest.fixture
def client(serving, tmp_path):
    return AgentClient("h1", tmp_path / "agent.sock")


def test_a_call_starts_no_thread(client, monkeypatch):
    """Thread.start once waited for ever, for a thread that had no memory to begin: the agent hung."""

    def start(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    assert [client.snapshot(0.0).host for _ in range(MAX_CALLS + 1)] == ["h1"] * (MAX_CALLS + 1)


def test_a_moment_without_memory_costs_one_caller_and_no_place(client, serving, monkeypatch):
    monkeypatch.setattr(server, "_RETRY_SECONDS", 0.0)
    kept = serving._workers.begin
    with monkeypatch.context() as patch:

        def fail(_):
            raise MemoryError

        patch.setattr(serving._workers, "begin", fail)
        patch.setattr(server.peers, "of", lambda _: Peer(1, 54321))
        serving._users.add(54321)
        for _ in range(MAX_CALLS):
            with pytest.raises(PinnerError):
                client.snapshot(0.0)
        patch.setattr(serving._workers, "begin", kept)
        assert client.snapshot(0.0).host == "h1"


def test_the_end_of_the_server_does_not_wait_for_ever_for_a_call_that_hangs(agent, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(server, "END_SECONDS", 0.0)
    inside, go = threading.Event(), threading.Event()

    def hang(_):
        inside.set()
        go.wait(SECONDS)

    monkeypatch.setattr(agent, "snapshot", hang)
    serving = AgentServer(agent, tmp_path / "agent.sock", user=os.geteuid())
    serving.start()

    def ask():
        with suppress(PinnerError):
            AgentClient("h1", tmp_path / "agent.sock").snapshot(0.0)

    asking = threading.Thread(target=ask)
    asking.start()
    assert inside.wait(SECONDS)
    serving.close()
    assert "1 calls have not ended" in caplog.text
    go.set()
    asking.join()
    assert serving._workers.end(SECONDS)
