"""A token with a host acts on that host alone: by name, through ids, in lists, and in events without a host."""

import inspect
from dataclasses import replace

import pytest
from support.fakes.in_memory_service import InMemoryService
from support.server.access import InMemoryTokens, client_of, make_control
from support.values import make_run

from pinner.api.access.context import HostService
from pinner.api.access.peer import TcpPeer
from pinner.api.app import create_app
from pinner.service.protocol import Service

GUEST = "6a5b7a0e-0000-4000-8000-000000000001"
EVENT = {"guest": GUEST, "event": "started"}


class TwoHosts(InMemoryService):
    """The in-memory service with the hosts h1 and h2."""

    def hosts(self):
        return ("h1", "h2")

    def observe(self, host, sample_seconds):
        return replace(super().observe(host, sample_seconds), host=host)

    def _start(self, **values):
        if not values.get("plan") and "undoes" not in values:
            return super()._start(**values, host="h2")
        of = self.stored[values["plan"]] if "plan" in values else self.run_list[values["undoes"]]
        return super()._start(host=of.host, **values)


@pytest.fixture
def pinner():
    return TwoHosts()


@pytest.fixture
def tokens():
    return InMemoryTokens()


@pytest.fixture
def callers(pinner, tokens):
    """A client for each host ("": every host) with the role admin."""
    app = create_app(pinner, control=make_control(tokens), max_body_bytes=4096)
    return {
        host: client_of(app, TcpPeer("192.0.2.1"), tokens.add("admin", host=host)) for host in ("h1", "h2", "h3", "")
    }


@pytest.fixture
def ids(callers):
    """The ids of a snapshot, a plan, a run and a probe of h2."""
    h2 = callers["h2"]
    snapshot = h2.post("/v1/hosts/h2/snapshot", json={}).json["id"]
    plan = h2.post("/v1/hosts/h2/plans", json={}).json["id"]
    run = h2.post(f"/v1/plans/{plan}/apply", json={}).json["id"]
    probe = h2.post(f"/v1/plans/{plan}/probe", json={}).json["id"]
    return {"snapshot": snapshot, "plan": plan, "run": run, "probe": probe}


BY_NAME = [
    ("GET", "/v1/hosts/h2", None),
    ("GET", "/v1/hosts/h2/topology", None),
    ("GET", "/v1/hosts/h2/capacity", None),
    ("GET", "/v1/hosts/h2/findings", None),
    ("GET", "/v1/hosts/h2/measures", None),
    ("GET", "/v1/hosts/h2/guests/web1/blame", None),
    ("POST", "/v1/hosts/h2/what-if", {}),
    ("GET", "/v1/hosts/h2/interrupts", None),
    ("GET", "/v1/hosts/h2/processes", None),
    ("GET", "/v1/hosts/h2/guests", None),
    ("POST", "/v1/hosts/h2/snapshot", {}),
    ("POST", "/v1/hosts/h2/plans", {}),
    ("GET", "/v1/hosts/h2/policy", None),
    ("PUT", "/v1/hosts/h2/policy", {}),
    ("DELETE", "/v1/hosts/h2/policy", None),
    ("POST", "/v1/hosts/h2/rollback", {}),
    ("GET", "/v1/hosts/h2/drift", None),
    ("PUT", f"/v1/hosts/h2/guests/{GUEST}/excluded", {}),
    ("GET", "/v1/plans?host=h2", None),
    ("GET", "/v1/runs?host=h2", None),
    ("GET", "/v1/audit?host=h2", None),
    ("POST", "/v1/events/guest-started", EVENT | {"host": "h2"}),
    ("POST", "/v1/events/guest-leaving", EVENT | {"host": "h2"}),
    ("POST", "/v1/events/guest-gone", EVENT | {"host": "h2"}),
]
BY_ID = [
    ("GET", "/v1/snapshots/{snapshot}", None),
    ("GET", "/v1/plans/{plan}", None),
    ("GET", "/v1/plans/{plan}?format=shell", None),
    ("GET", "/v1/plans/{plan}/explanation?guest=6a5b7a0e-0000-4000-8000-000000000001", None),
    ("POST", "/v1/plans/{plan}/apply", {}),
    ("GET", "/v1/runs/{run}", None),
    ("GET", "/v1/runs/{run}/outcome", None),
    ("GET", "/v1/runs/{run}/events", None),
    ("POST", "/v1/runs/{run}/rollback", {}),
    ("POST", "/v1/plans/{plan}/probe", {}),
    ("GET", "/v1/probes/{probe}", None),
    ("DELETE", "/v1/probes/{probe}", None),
]


@pytest.mark.fault(44)
@pytest.mark.parametrize(("method", "path", "body"), BY_NAME)
def test_another_host_is_forbidden_whether_it_exists_or_not(callers, pinner, ids, method, path, body):
    before = pinner.state()
    answer = callers["h1"].open(path, method=method, json=body)
    elsewhere = {**body, "host": "h9"} if body and "host" in body else body
    absent = callers["h1"].open(path.replace("h2", "h9"), method=method, json=elsewhere)
    assert (answer.status_code, absent.status_code) == (403, 403)
    assert answer.json["error"]["message"].replace("h2", "h9") == absent.json["error"]["message"]
    assert pinner.state() == before
    allowed = callers["h2"].open(path, method=method, json=body)
    assert allowed.status_code in (200, 201, 202) or (allowed.status_code == 404 and method in ("GET", "DELETE"))


@pytest.mark.fault(44)
@pytest.mark.parametrize(("method", "path", "body"), BY_ID)
def test_an_id_of_another_host_is_as_unknown_as_any(callers, pinner, ids, method, path, body):
    if method == "GET":
        assert callers["h2"].open(path.format(**ids), method=method).status_code == 200, "now it may be in a cache"
    before = pinner.state()
    answer = callers["h1"].open(path.format(**ids), method=method, json=body)
    unknown = callers["h1"].open(path.format(**dict.fromkeys(ids, "none")), method=method, json=body)
    assert (answer.status_code, unknown.status_code) == (404, 404)
    assert set(answer.json["error"]["details"]) == set(unknown.json["error"]["details"])
    assert "h2" not in answer.text
    assert pinner.state() == before
    assert callers["h2"].open(path.format(**ids), method=method, json=body).status_code in (200, 202)


def test_a_snapshot_of_another_host_is_no_basis_of_a_plan(callers, ids):
    answer = callers["h1"].post("/v1/hosts/h1/plans", json={"snapshot": ids["snapshot"]})
    assert (answer.status_code, answer.json["error"]["details"]["kind"]) == (404, "snapshot")


def test_a_plan_of_another_host_has_no_successor(callers, ids):
    answer = callers["h1"].post("/v1/hosts/h1/plans", json={"replaces": ids["plan"]})
    assert (answer.status_code, answer.json["error"]["details"]["kind"]) == (404, "plan")


def test_a_plan_of_another_host_is_no_rival(callers, pinner, ids):
    own = callers["h1"].post("/v1/hosts/h1/plans", json={}).json["id"]
    before = pinner.state()
    answer = callers["h1"].post(f"/v1/plans/{own}/probe", json={"rivals": [ids["plan"]]})
    assert (answer.status_code, answer.json["error"]["details"]["kind"]) == (404, "plan")
    assert pinner.state() == before


def test_lists_have_the_one_host(callers, ids):
    for path in ("/v1/plans", "/v1/runs"):
        assert callers["h1"].get(path).json["items"] == []
        assert callers[""].get(path).json["items"] != []
    # The in-memory service writes every audit record for h1.
    assert callers["h2"].get("/v1/audit").json["items"] == []
    assert callers["h1"].get("/v1/audit").json["items"] != []
    assert callers["h2"].get("/v1/plans").json["items"] != []
    assert callers["h1"].get("/v1/hosts").json["items"] == ["h1"]
    assert callers["h3"].get("/v1/hosts").json["items"] == []


@pytest.mark.fault(44)
def test_a_marker_does_not_tell_whether_another_hosts_run_exists(store, monkeypatch, pinner, callers):
    """The runs of the real database, whose markers may be the ids of any row."""
    store.runs.add(make_run("run-1", "h1"))
    store.runs.add(make_run("run-2", "h2"))
    monkeypatch.setattr(pinner, "run", store.runs.get)
    monkeypatch.setattr(pinner, "runs", store.runs.list)
    answers = {marker: callers["h1"].get("/v1/runs", query_string={"marker": marker}) for marker in ("run-2", "run-9")}
    assert [answer.status_code for answer in answers.values()] == [400, 400]
    messages = [answer.json["error"]["message"].replace(marker, "X") for marker, answer in answers.items()]
    assert messages[0] == messages[1]
    assert callers["h1"].get("/v1/runs?marker=run-1").status_code == 200


def test_an_event_without_a_host_is_the_tokens_host(callers):
    for host in ("h1", "h2"):
        assert callers[host].post("/v1/events/guest-started", json=EVENT).json["host"] == host


def test_a_host_that_the_server_does_not_manage_shows_no_other(callers):
    answer = callers["h3"].get("/v1/hosts/h3")
    assert (answer.status_code, answer.json["error"]["details"]["known"]) == (404, [])


def test_the_chain_of_the_audit_trail_is_not_one_hosts(callers):
    anchor = callers[""].get("/v1/audit/anchor").json
    for method, path, body in (
        ("GET", "verify", None),
        ("POST", "verify", anchor),
        ("GET", "anchor", None),
        ("GET", "export", None),
    ):
        assert callers["h1"].open(f"/v1/audit/{path}", method=method, json=body).status_code == 403
        assert callers[""].open(f"/v1/audit/{path}", method=method, json=body).status_code == 200


def test_no_use_case_is_forgotten():
    """HostService has each with the arguments of Service; none is inherited, so none reaches another host."""
    names = {name for name in vars(Service) if not name.startswith("_")}
    assert names <= set(vars(HostService))
    for name in names:
        limited = inspect.signature(getattr(HostService, name))
        assert limited == inspect.signature(getattr(Service, name)), name
