"""The conventions of HTTP and OpenStack that clients expect of every route."""

import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.server.unix_http import on_unix_socket

from pinner.api.access.credentials import Credentials, Identity
from pinner.api.idempotency import KEY, REPLAYED
from pinner.api.negotiation import VERSION_HEADER
from pinner.model.errors import Busy, HostBusy, HostUnreachable, RunConflict, StalePlan, StoreUnavailable

REQUEST_ID = "X-Openstack-Request-Id"
POLICY = "/v1/hosts/h1/policy"


def test_an_etag_protects_a_policy_from_a_lost_update(client):
    made = client.put(POLICY, json={}, headers={"If-None-Match": "*"})
    assert made.status_code == 200
    first = made.headers["ETag"]
    assert client.get(POLICY).headers["ETag"] == first
    second = client.put(POLICY, json={"mode": "propose"}, headers={"If-Match": first}).headers["ETag"]
    assert second != first
    both = {"If-Match": second, "If-None-Match": "*"}
    for headers in ({"If-Match": first}, {"If-None-Match": "*"}, {"If-Match": f"W/{second}, {first}"}, both):
        refused = client.put(POLICY, json={"mode": "enforce"}, headers=headers)
        assert (refused.status_code, refused.json["error"]["code"]) == (412, "precondition_failed"), headers
    assert client.put(POLICY, json={"mode": "enforce"}, headers={"If-Match": f"{first}, {second}"}).status_code == 200
    assert client.put(POLICY, json={}, headers={"If-Match": "*"}).status_code == 200


@pytest.mark.parametrize(
    "headers", [{"If-Match": ""}, {"If-Match": '""'}, {"If-Match": '"0", ""'}, {"If-None-Match": '"x"'}]
)
def test_a_wrong_condition_is_named(client, headers):
    answer = client.put(POLICY, json={}, headers=headers)
    assert answer.status_code == 400
    assert answer.json["error"]["details"]["field"] in headers


def test_any_policy_must_exist_for_a_star(client):
    assert client.put(POLICY, json={}, headers={"If-Match": "*"}).status_code == 412


def test_a_policy_is_deleted(client):
    tag = client.put(POLICY, json={}).headers["ETag"]
    assert client.delete(POLICY, headers={"If-Match": '"0"'}).status_code == 412
    answer = client.delete(POLICY, headers={"If-Match": tag})
    assert (answer.status_code, answer.data) == (204, b"")
    assert client.delete(POLICY).status_code == client.get(POLICY).status_code == 404


def test_a_repeated_request_with_a_key_gets_the_first_answer(client, pinner):
    headers = {KEY: str(uuid.uuid4())}
    first = client.post("/v1/hosts/h1/plans", json={}, headers=headers)
    again = client.post("/v1/hosts/h1/plans", json={}, headers=headers)
    assert (again.status_code, again.json) == (201, first.json)
    assert again.headers["Location"] == first.headers["Location"]
    assert (first.headers.get(REPLAYED), again.headers[REPLAYED]) == (None, "true")
    assert again.headers[REQUEST_ID] != first.headers[REQUEST_ID]
    assert len(pinner.stored) == 1


def test_a_key_belongs_to_one_request(client, pinner):
    headers = {KEY: "k1"}
    client.post("/v1/hosts/h1/plans", json={}, headers=headers)
    for path, body in (("/v1/hosts/h1/plans", {"strategy": "isolated"}), ("/v1/hosts/h1/snapshot", {})):
        answer = client.post(path, json=body, headers=headers)
        assert (answer.status_code, answer.json["error"]["code"]) == (422, "key_reused")
    assert len(pinner.stored) == 1


def test_a_refused_request_frees_its_key(client):
    headers = {KEY: "k1"}
    assert client.post("/v1/hosts/h1/plans", json={"strategy": "none"}, headers=headers).status_code == 404
    assert client.post("/v1/hosts/h1/plans", json={}, headers=headers).status_code == 201


def test_of_simultaneous_requests_with_one_key_one_is_done(client, pinner):
    def post(_):
        return (
            on_unix_socket(client.application.test_client())
            .post("/v1/hosts/h1/plans", json={}, headers={KEY: "k1"})
            .status_code
        )

    with ThreadPoolExecutor(8) as pool:
        statuses = list(pool.map(post, range(16)))
    assert set(statuses) <= {201, 409}
    assert 201 in statuses
    assert len(pinner.stored) == 1


def test_a_key_whose_request_has_no_answer_yet_waits(client, pinner, monkeypatch):
    """Only the same request waits: another one with this key can never be done."""
    answers = []

    def post(body):
        sender = on_unix_socket(client.application.test_client())
        return sender.post("/v1/hosts/h1/plans", json=body, headers={KEY: "k1"})

    def plan(host, *args):
        with ThreadPoolExecutor(1) as pool:
            answers.extend(pool.map(post, ({}, {"strategy": "isolated"})))
        monkeypatch.setattr(pinner, "plan", real)
        return real("none", *args)

    real = pinner.plan
    monkeypatch.setattr(pinner, "plan", plan)
    refused = post({})
    same, other = answers
    assert (same.status_code, same.json["error"]["code"]) == (409, "in_progress")
    assert int(same.headers["Retry-After"]) >= 1
    assert (other.status_code, other.json["error"]["code"]) == (422, "key_reused")
    assert refused.status_code == 404
    assert post({"strategy": "isolated"}).status_code == 201


@pytest.mark.fault(60)
@pytest.mark.parametrize(("path", "status"), [("h1/plans", 201), ("none/plans", 404)])
def test_a_request_is_answered_although_its_answer_cannot_be_stored(
    client, idempotency_keys, monkeypatch, path, status
):
    """A 503 would ask to repeat an action that is done."""

    def fail(*_args):
        raise StoreUnavailable("db", "the server restarts")

    for name in ("end", "forget"):
        monkeypatch.setattr(type(idempotency_keys), name, fail)
    assert client.post(f"/v1/hosts/{path}", json={}, headers={KEY: "k1"}).status_code == status


def test_a_key_belongs_to_one_actor_and_host_however_long_their_names_are(client, idempotency_keys, monkeypatch):
    """The column of PostgreSQL and MariaDB has 255 characters."""
    scopes = []
    monkeypatch.setattr(type(idempotency_keys), "begin", lambda _, request: scopes.append(request.actor))
    for actor, host in (("a" * 255, "h1"), ("a h1", ""), ("a", "h1"), ("a", "h2"), ("a", "")):
        identity = Identity(actor, "tcp", "admin", host)
        monkeypatch.setattr(Credentials, "identify", lambda *_, known=identity: known)
        client.post("/v1/hosts/h1/plans", json={}, headers={KEY: "k1"})
    assert all(len(scope) <= 255 for scope in scopes)
    assert len({*scopes}) == 5


@pytest.mark.parametrize("key", ["", "k" * 256, "\u0663"])
def test_a_wrong_key_is_named(client, key):
    answer = client.post("/v1/hosts/h1/plans", json={}, headers={KEY: key})
    assert (answer.status_code, answer.json["error"]["details"]["field"]) == (400, KEY)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (StalePlan("p", ("x",)), 409),
        (HostBusy("h1", "r"), 409),
        (RunConflict("r", "failed", "x"), 409),
        (Busy("guest g", "x", overdue=False), 503),
        (HostUnreachable("h1", "x"), 503),
        (StoreUnavailable("db", "x"), 503),
    ],
)
def test_a_temporary_refusal_says_when_to_try_again(client, pinner, monkeypatch, error, status):
    def fail(*_args, **_options):
        raise error

    monkeypatch.setattr(pinner, "apply", fail)
    answer = client.post("/v1/plans/p/apply", json={})
    assert answer.status_code == status
    assert int(answer.headers["Retry-After"]) >= 1


def test_the_id_that_a_client_gives_its_request_is_used(client, pinner):
    given = f"req-{uuid.uuid4()}"
    answer = client.post("/v1/hosts/h1/plans", json={}, headers={REQUEST_ID: given})
    assert answer.headers[REQUEST_ID] == given
    assert pinner.records[-1].request_id == given


@pytest.mark.parametrize("given", ["req-1", "x" * 4000, "req-00000000-0000-4000-8000-000000000001x", "req-\u0663"])
def test_another_request_id_is_replaced(client, given):
    answer = client.get("/v1", headers={REQUEST_ID: given})
    assert answer.status_code == 200
    assert uuid.UUID(answer.headers[REQUEST_ID].removeprefix("req-"))
    assert answer.headers[REQUEST_ID] != given


def test_the_versions(client):
    (version,) = client.get("/").json["versions"]
    assert client.get("/v1").json == version
    for path in version["lists"]:
        assert client.get(path).status_code == 200
    assert client.get(version["description"]).json["openapi"].startswith("3.1")
    assert client.get("/").headers[VERSION_HEADER] == "pinner 1.0"


@pytest.mark.parametrize(
    ("asked", "status"),
    [("pinner 1.0", 200), ("pinner latest", 200), ("compute 2.95", 200), ("compute 2.95, pinner 1.0", 200),
     ("pinner 1.1", 406), ("pinner 2", 406), ("pinner", 406)],
)  # fmt: skip
def test_a_version_that_is_not_served_is_refused(client, asked, status):
    answer = client.get("/v1", headers={VERSION_HEADER: asked})
    assert answer.status_code == status
    assert answer.headers[VERSION_HEADER] == "pinner 1.0"


@pytest.mark.parametrize("direction", ["asc", "desc"])
def test_the_link_to_the_next_page_leads_through_a_list(client, direction):
    made = [client.post("/v1/hosts/h1/plans", json={}).json["id"] for _ in range(5)]
    found, path = [], f"/v1/plans?limit=2&host=h1&sort_dir={direction}"
    while path:
        answer = client.get(path)
        found += [plan["id"] for plan in answer.json["items"]]
        link = answer.headers.get("Link", "")
        assert bool(link) == bool(answer.json["next"])
        path = link.removeprefix("<").removesuffix('>; rel="next"')
    assert found == (made if direction == "asc" else made[::-1])


def test_runs_in_one_state(client, pinner):
    plan = client.post("/v1/hosts/h1/plans", json={}).json["id"]
    applied = client.post(f"/v1/plans/{plan}/apply", json={}).json["id"]
    pinner.instant = False
    running = client.post(f"/v1/plans/{plan}/apply", json={}).json["id"]
    for state, ids in (("applied", [applied]), ("running", [running]), ("failed", [])):
        assert [run["id"] for run in client.get(f"/v1/runs?state={state}").json["items"]] == ids
    assert client.get("/v1/runs?state=other").status_code == 400


@pytest.mark.parametrize("name", ["%00", "a%00b", "x" * 256, "9" * 400])
@pytest.mark.parametrize(
    "path", ["hosts/{}", "plans/{}", "runs/{}", "runs/{}/events", "snapshots/{}", "hosts/{}/policy"]
)
def test_an_impossible_name_is_not_found(client, path, name):
    answer = client.get(f"/v1/{path.format(name)}")
    assert (answer.status_code, answer.json["error"]["code"]) == (404, "not_found")
    assert len(answer.data) < 1000
