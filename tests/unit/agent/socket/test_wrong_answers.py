"""An agent whose answer is none: of another version, or cut off. It is not the caller's request that is wrong."""

import json
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinner.agent.socket.client import AgentClient
from pinner.model.errors import Unanswered

WRONG = (
    {},
    {"result": {"host": "h1"}},
    {"result": [{"seq": 1}]},
    {"error": {"code": "gone"}},
    {"error": "gone"},
    {"error": {"code": "no_such_code", "message": 5, "details": []}},
)


@pytest.fixture
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The socket of an agent that answers every call with the test's parameter ``answer``."""
    text = json.dumps(request.getfixturevalue("answer")).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(tmp_path / "socket"))
        server.listen()

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(1 << 16)
                peer.sendall(struct.pack("!I", len(text)) + text)

        serving = threading.Thread(target=serve)
        serving.start()
        yield tmp_path / "socket"
        serving.join()


@pytest.mark.parametrize("answer", WRONG, ids=json.dumps)
@pytest.mark.parametrize("call", ["snapshot", "entries", "health", "host_events", "audit_head", "has_guest", "run"])
def test_an_answer_that_cannot_be_read_names_the_agent(path: Path, answer: object, call: str) -> None:
    client = AgentClient("h1", path)
    calls = {
        "snapshot": lambda: client.snapshot(0.0),
        "entries": lambda: client.entries("run-1"),
        "health": client.health,
        "host_events": lambda: client.host_events(0, 0.0, ()),
        "audit_head": lambda: client.audit_head(None),
        "has_guest": lambda: client.has_guest("g"),
        "run": lambda: client.run("run-1"),
    }
    with pytest.raises(Unanswered, match=r"host h1: the answer of its agent at .*/socket cannot be read"):
        calls[call]()
