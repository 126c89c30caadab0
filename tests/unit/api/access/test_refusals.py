"""Refused requests in the audit trail: each is named, and nobody can fill the trail with them."""

import time

import pytest
from support.server.access import AuditList, InMemoryTokens, bearer, client_of, make_control

from pinner.api.access.peer import TcpPeer
from pinner.api.access.refusals import MAX_TEXT, PER_ORIGIN, TOTAL
from pinner.api.app import create_app
from pinner.model.errors import StoreUnavailable
from pinner.model.run.audit import AuditAction


def client_from(address, pinner, **settings):
    app = create_app(pinner, control=make_control(**settings), max_body_bytes=4096)
    return client_of(app, TcpPeer(address))


@pytest.fixture
def trail():
    return AuditList()


@pytest.mark.fault(44)
def test_every_refusal_is_recorded(pinner, trail):
    tokens = InMemoryTokens()
    client = client_from("192.0.2.1", pinner, tokens=tokens, audit=trail)
    client.get("/v1/hosts")
    client.get("/v1/runs?token=hunter2", headers=bearer("wrong"))
    client.put("/v1/hosts/h1/policy", json={}, headers=bearer(tokens.add("reader", "ann")))
    for _ in range(6):
        client.get("/v1/hosts", headers=bearer("wrong"))
    assert {event.action for event in trail} == {AuditAction.REQUEST_REFUSE}
    assert [(event.actor, event.subject, event.result[:3]) for event in trail[:3]] == [
        ("unauthenticated", "GET /v1/hosts", "401"),
        ("unauthenticated", "GET /v1/runs", "401"),
        ("ann", "PUT /v1/hosts/h1/policy", "403"),
    ]
    assert trail[2].result.endswith("role reader of ann is not allowed by the rule pinner:policies:set")
    assert trail[-1].result[:3] == "429"
    assert {event.origin for event in trail} == {"192.0.2.1"}
    assert "hunter2" not in str(trail)


def test_an_accepted_request_and_a_wrong_one_are_no_refusals(pinner, trail, client):
    client.application.extensions["pinner"].access.refusals._audit = trail
    assert client.get("/v1/hosts").status_code == 200
    assert client.get("/v1/plans/none").status_code == 404
    assert trail == []


@pytest.mark.fault(44)
def test_records_are_bounded_and_the_rest_is_counted(pinner, trail):
    client = client_from("192.0.2.1", pinner, audit=trail, window_seconds=600)
    for _ in range(PER_ORIGIN + 5):
        client.get("/v1/hosts")
    assert len(trail) == PER_ORIGIN
    for number in range(2 * TOTAL):
        client_of(client.application, TcpPeer(f"198.51.100.{number}")).get("/v1/hosts")
    assert len(trail) == TOTAL
    client.application.extensions["pinner"].access.refusals.close()
    last = trail[-1]
    assert len(trail) == TOTAL + 1
    assert last.subject == f"{5 + 2 * TOTAL - (TOTAL - PER_ORIGIN)} more requests"
    assert (last.action, last.result) == (
        AuditAction.REQUEST_REFUSE,
        "refused within 600 seconds, and not recorded one by one",
    )


def test_a_window_ends_by_itself(pinner, trail):
    client = client_from("192.0.2.1", pinner, audit=trail, window_seconds=0.3)
    for _ in range(PER_ORIGIN + 1):
        client.get("/v1/hosts")
    deadline = time.monotonic() + 60
    while len(trail) == PER_ORIGIN and time.monotonic() < deadline:
        time.sleep(0.02)
    assert trail[-1].subject == "1 more requests"
    client.get("/v1/hosts")
    assert len(trail) == PER_ORIGIN + 2, "a new window records again"


@pytest.mark.parametrize("path", ["/v1/" + "x" * 3000, "/v1/%0a%1b[31m%00evil", "/v1/%ff", "/v1/\u202e"])
def test_texts_of_the_caller_are_bounded_and_printable(pinner, trail, path):
    client = client_from("192.0.2.1", pinner, audit=trail)
    client.get(path, headers=bearer("\x1b" + "y" * 3000))
    client.post("/v1/hosts", headers={"Origin": "z" * 3000})
    for event in trail:
        for text in (event.subject, event.result, event.origin):
            assert len(text) <= MAX_TEXT + 3
            assert text.isprintable()


def test_the_answer_does_not_depend_on_the_audit_trail(pinner, caplog):
    class Broken:
        def append(self, *_events):
            raise StoreUnavailable("sqlite", "disk full")

    client = client_from("192.0.2.1", pinner, audit=Broken())
    assert client.get("/v1/hosts").status_code == 401
    assert "could not be recorded" in caplog.text


def test_a_compressed_answer_is_recorded_too(pinner, trail):
    client = client_from("192.0.2.1", pinner, audit=trail)
    client.application.after_request(lambda response: response.set_data(b"\x1f\x8b") or response)
    assert client.get("/v1/hosts").status_code == 401
    assert "bearer token" in trail[0].result
