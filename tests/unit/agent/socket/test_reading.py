"""The reading of a host on its way from the agent's process to the checks."""

import os
from contextlib import closing

import pytest
from support.made_up.checks.check_cases_network import CASES

from pinner.agent.captured import CapturedAgent
from pinner.agent.socket.client import AgentClient
from pinner.agent.socket.server import AgentServer
from pinner.model.errors import Invalid


@pytest.fixture
def whole():
    reading, _ = CASES["tap-drops"]
    return reading


@pytest.fixture
def client(tmp_path, whole):
    agent = CapturedAgent(lambda _: whole.snapshot, lambda _: whole)
    with closing(AgentServer(agent, tmp_path / "agent.sock", os.geteuid())) as server:
        server.start()
        yield AgentClient("h1", tmp_path / "agent.sock", patience=20)


def test_a_reading_arrives_whole(client, whole):
    assert client.reading(1.0) == whole


@pytest.mark.parametrize("seconds", [-1.0, 1e9])
def test_an_impossible_sample_is_refused(client, seconds):
    with pytest.raises(Invalid, match="sample_seconds"):
        client.reading(seconds)
