"""What the public learns about the health of a server, and what a caller with a credential learns."""

import uuid
from contextlib import closing

import pytest
from support.fakes.hosted_agent import HostedAgent
from support.hosts import plain, snapshot
from support.server.access import InMemoryTokens, bearer, client_of, make_control

from pinner import wiring
from pinner.api.access.peer import TcpPeer
from pinner.api.app import create_app
from pinner.service.local import ServiceParts
from pinner.store.repositories import open_store

pytestmark = pytest.mark.fault(56)
SECRET = "libvirt does not answer at qemu+unix:///system?socket=/srv/secret"


@pytest.fixture
def agent(tmp_path):
    made = HostedAgent(tmp_path / "agent", snapshot(plain(4), [], []), wiring.now)
    with closing(made.journal):
        yield made


@pytest.fixture
def parts(tmp_path, agent):
    agents = {"h1": agent, "h2": agent}
    with (
        open_store(f"sqlite:///{tmp_path}/pinner.sqlite") as store,
        closing(ServiceParts(agents, store, wiring.now, lambda: uuid.uuid4().hex[:12], 0.0)) as parts,
    ):
        yield parts


@pytest.fixture
def tokens():
    return InMemoryTokens()


@pytest.fixture
def client(parts, tokens):
    app = create_app(parts.service, control=make_control(tokens), max_body_bytes=4096, monitor=parts.monitor)
    return client_of(app, TcpPeer("192.0.2.1"))


def test_the_public_learns_which_part_fails_and_not_why(client, parts, agent):
    parts.monitor.check()
    assert (answer := client.get("/healthcheck/ready")).status_code == 200
    assert answer.json["status"] == "ready"
    agent.libvirt_fails = SECRET
    parts.monitor.check()
    answer = client.get("/healthcheck/ready")
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0
    assert {"name": "libvirt", "ok": False} in answer.json["checks"]
    assert "secret" not in answer.text
    for path in ("/healthcheck", "/healthcheck/live"):
        assert client.get(path).json == {"status": "ok"}, "the process lives"


def test_a_reader_learns_why(client, parts, agent, tokens):
    agent.libvirt_fails = SECRET
    parts.monitor.check()
    answer = client.get("/v1/health", headers=bearer(tokens.add("reader")))
    assert answer.status_code == 200
    assert answer.json["status"] == "not_ready"
    assert {"name": "libvirt", "ok": False, "why": SECRET} in answer.json["checks"]


@pytest.mark.parametrize("path", ["/v1/health", "/metrics"])
def test_a_token_of_one_host_does_not_see_the_others(client, tokens, path):
    answer = client.get(path, headers=bearer(tokens.add("reader", host="h1")))
    assert answer.status_code == 403
    assert "h1" in answer.json["error"]["message"]


def test_readiness_asks_nobody(client, parts, agent, monkeypatch):
    parts.monitor.check()
    asked = []
    monkeypatch.setattr(agent, "health", lambda: asked.append(1))
    for _ in range(50):
        assert client.get("/healthcheck/ready").status_code == 200
    assert asked == []


def test_metrics_have_prometheus_media_type(client, parts, tokens):
    parts.monitor.check()
    answer = client.get("/metrics", headers=bearer(tokens.add("reader")))
    assert answer.content_type == "text/plain; version=0.0.4; charset=utf-8"
    assert 'pinner_check_ok{check="database"} 1.0' in answer.text
