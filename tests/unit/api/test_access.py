"""Who may come in: with tokens those who have one, without them only this machine, and no other site's page."""

import logging

import pytest
from support.in_memory_service import InMemoryService

from pinner.api.app import create_app

PUBLIC = ["/", "/healthcheck", "/openapi.json"]
CLOSED = ["/v1/hosts", "/v1/audit", "/v1/runs/r/events"]


@pytest.fixture
def guarded(pinner: InMemoryService):
    return create_app(pinner, tokens={"s3cret": "ann", "other": "bob"}, max_body_bytes=4096).test_client()


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("path", PUBLIC)
def test_public(guarded, path):
    assert guarded.get(path, headers={"Host": "pinner.example.org"}).status_code == 200


@pytest.mark.fault(39)
@pytest.mark.parametrize("path", CLOSED)
@pytest.mark.parametrize(
    "headers",
    [{}, bearer("wrong"), bearer(""), bearer("s3cre"), {"Authorization": "Basic s3cret"}, bearer("schl\u00fcssel")],
)
def test_closed(guarded, path, headers, caplog):
    with caplog.at_level(logging.DEBUG):
        answer = guarded.get(path, headers=headers)
    assert answer.status_code == 401
    assert answer.json["error"]["code"] == "unauthorized"
    assert answer.headers["WWW-Authenticate"].lower().startswith("bearer")
    assert "s3cre" not in caplog.text


@pytest.mark.parametrize(("token", "name"), [("s3cret", "ann"), ("other", "bob")])
def test_the_token_names_the_actor(guarded, pinner, token, name):
    guarded.post("/v1/hosts/h1/plans", headers=bearer(token))
    assert pinner.records[-1].actor == name
    assert token not in str(pinner.records)


def test_no_token_at_all_lets_nobody_in(pinner):
    closed = create_app(pinner, tokens={}, max_body_bytes=4096).test_client()
    assert closed.get("/v1/hosts", headers=bearer("")).status_code == 401


@pytest.mark.parametrize("host", ["localhost", "localhost:8077", "127.0.0.1:8077", "127.9.9.9", "[::1]:8077"])
def test_loopback_names(client, host):
    assert client.get("/v1/hosts", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "10.0.0.1", "[::1", "", "0.0.0.0"]
)
def test_a_name_that_only_points_here(client, pinner, host):
    answer = client.post("/v1/hosts/h1/plans", headers={"Host": host})
    assert (answer.status_code, answer.json["error"]["code"]) == (421, "misdirected")
    assert pinner.records == []


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "http://[::1"])
def test_a_page_of_another_site(client, pinner, origin):
    answer = client.post("/v1/hosts/h1/plans", headers={"Host": "localhost:8077", "Origin": origin})
    assert (answer.status_code, answer.json["error"]["code"]) == (403, "forbidden")
    assert pinner.records == []


def test_a_page_of_our_own(client):
    headers = {"Host": "localhost:8077", "Origin": "http://localhost:8077"}
    assert client.post("/v1/hosts/h1/plans", headers=headers).status_code == 201
