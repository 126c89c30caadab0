"""An agent that is stopped (SIGSTOP), or works for long: a real agent in a process of its own."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.values import make_change, make_plan, make_run

from pinner.agent.socket.client import MAX_UNHEARD, AgentClient, SignsOfLife, Silent
from pinner.model.errors import HostUnreachable, NotFound, Unanswered

pytestmark = pytest.mark.fault(56)
SUPPORT = Path(__file__).parents[3] / "support"
SILENCE = 3.0
"""Much longer than the fifth of a second between two signs of life of this agent."""


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """An agent at ``tmp_path / "socket"``, without libvirt."""
    folder = tmp_path / "agent"
    folder.mkdir()
    uri = f"qemu+unix:///system?socket={tmp_path}/no-libvirt"
    command = [str(SUPPORT / "server/agent_process.py"), str(tmp_path / "socket"), str(os.geteuid()), str(folder), uri]
    with subprocess.Popen(
        [sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.send_signal(signal.SIGCONT)
        process.communicate(timeout=60)


@pytest.fixture
def client(agent: subprocess.Popen[str], tmp_path: Path) -> AgentClient:
    return AgentClient("h1", tmp_path / "socket", silence=SILENCE)


@contextmanager
def stopped(agent: subprocess.Popen[str]) -> Iterator[None]:
    agent.send_signal(signal.SIGSTOP)
    # The signal reaches each thread when it runs next; until then the agent may accept connections.
    os.waitid(os.P_PID, agent.pid, os.WSTOPPED | os.WNOWAIT)
    try:
        yield
    finally:
        agent.send_signal(signal.SIGCONT)


@pytest.fixture
def connections(client, monkeypatch) -> list[int]:
    """An item for each connection of the client: only a call that connects waits for the agent."""
    made: list[int] = []
    connect = client._connect
    monkeypatch.setattr(client, "_connect", lambda: made.append(len(made)) or connect())
    return made


def test_a_stopped_agent_is_unreachable_after_a_bounded_time_and_recovers(agent, client):
    assert client.topology().cpus
    with stopped(agent):
        began = time.monotonic()
        with pytest.raises(Unanswered, match=r"no sign of life for 3 s") as error:
            client.topology()
        assert time.monotonic() - began >= SILENCE
        assert error.value.details["seconds"] == pytest.approx(SILENCE, abs=1)
    assert client.topology().cpus, "the agent is asked again, and answers"


def test_while_it_is_silent_one_caller_waits_and_the_others_learn_it_at_once(agent, client, connections):
    with stopped(agent):
        with pytest.raises(Unanswered):
            client.topology()
        connections.clear()
        with ThreadPoolExecutor(1) as other:
            asking = other.submit(client.topology)
            while not connections:
                time.sleep(0.01)
            for _ in range(100):
                with pytest.raises(HostUnreachable, match="no sign of life"):
                    client.run("run-1")
            assert len(connections) == 1
            agent.send_signal(signal.SIGCONT)
            assert asking.result().cpus, "the one that waits gets its answer as soon as the agent goes on"
    with pytest.raises(NotFound):
        client.run("run-1")


def test_eighty_calls_to_a_stopped_agent_end_soon(agent, client, connections):
    """Sixteen workers, as those of the API."""
    with stopped(agent), ThreadPoolExecutor(16) as workers:
        calls = [workers.submit(client.topology) for _ in range(80)]
    assert all(isinstance(call.exception(), HostUnreachable) for call in calls)
    assert len(connections) <= MAX_UNHEARD, "no more callers than that wait for long"


def test_a_full_queue_of_connections_is_silence_too(agent, client):
    with stopped(agent):
        full = [client._connect() for _ in range(65)]  # listen(64) of the agent, and one
        fast = AgentClient("h1", client._path, silence=0.5)
        with pytest.raises(HostUnreachable, match="no sign of life") as error:
            fast.topology()
        assert not isinstance(error.value, Unanswered), "the call was not made"
        for peer in full:
            peer.close()


def test_a_long_call_of_a_working_agent_is_waited_for(client):
    """The sample takes longer than the silence; the signs of life say that the agent works."""
    began = time.monotonic()
    with pytest.raises(HostUnreachable, match="libvirt does not answer"):  # the agent's own answer, after its sample
        client.snapshot(SILENCE + 2)
    assert time.monotonic() - began >= SILENCE + 2


def test_a_call_that_works_for_ever_is_left_in_the_end(agent, client, tmp_path):
    last = max((event.seq for event in client.host_events(0, 0.0, ())), default=0)
    impatient = AgentClient("h1", tmp_path / "socket", patience=-58.0, silence=SILENCE)
    with pytest.raises(Unanswered, match="has worked on the call host_events for 2 s"):
        impatient.host_events(last, 60.0, ())


def test_a_run_whose_caller_gave_up_before_it_began_never_begins(agent, client):
    """So the caller learns the truth from the journal: not found means that nothing was changed."""
    with stopped(agent), pytest.raises(Unanswered):
        client.apply(make_plan(changes=(make_change(100),)), make_run(), lambda *_: None)
    for _ in range(20):
        with pytest.raises(NotFound):
            client.run("run-1")
        time.sleep(0.05)


def test_many_callers_of_a_quick_agent_all_get_a_place():
    signs, at_once, most = SignsOfLife(100.0), 0, 0  # a place is waited for 10 s, also on a busy machine
    guard = threading.Lock()

    def call(_: int) -> None:
        nonlocal at_once, most
        with signs.call() as hear:
            with guard:
                at_once += 1
                most = max(most, at_once)
            time.sleep(0.002)
            with guard:
                at_once -= 1
            hear()

    with ThreadPoolExecutor(64) as callers:
        list(callers.map(call, range(500)))
    assert most <= MAX_UNHEARD


def test_one_call_without_signs_does_not_condemn_an_agent_that_answers_others():
    now = 0.0
    signs = SignsOfLife(10.0, clock=lambda: now)
    with pytest.raises(Silent), signs.call():
        now = 9.0
        with pytest.raises(Silent), signs.call():
            pass  # another caller waits already for longer than half of the silence
        raise TimeoutError
    with signs.call() as hear, signs.call():
        hear()
