"""Access: with tokens only callers that have one; without tokens only this machine, and no page of another site."""

import logging

import pytest
from support.in_memory_service import InMemoryService

from pinner.api.app import create_app

PUBLIC = ["/", "/healthcheck", "/openapi.json"]
PROTECTED = ["/v1/hosts", "/v1/audit", "/v1/runs/r/events"]


@pytest.fixture
def token_client(pinner: InMemoryService):
    return create_app(pinner, tokens={"s3cret": "ann", "other": "bob"}, max_body_bytes=4096).test_client()


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.mark.parametrize("path", PUBLIC)
def test_public_paths_need_no_token(token_client, path):
    assert token_client.get(path, headers={"Host": "pinner.example.org"}).status_code == 200


@pytest.mark.fault(39)
@pytest.mark.parametrize("path", PROTECTED)
@pytest.mark.parametrize(
    "headers",
    [{}, bearer("wrong"), bearer(""), bearer("s3cre"), {"Authorization": "Basic s3cret"}, bearer("schl\u00fcssel")],
)
def test_other_paths_refuse_callers_without_a_known_token(token_client, path, headers, caplog):
    with caplog.at_level(logging.DEBUG):
        answer = token_client.get(path, headers=headers)
    assert answer.status_code == 401
    assert answer.json["error"]["code"] == "unauthorized"
    assert answer.headers["WWW-Authenticate"].lower().startswith("bearer")
    assert "s3cre" not in caplog.text


@pytest.mark.parametrize(("token", "name"), [("s3cret", "ann"), ("other", "bob")])
def test_the_token_determines_the_actor(token_client, pinner, token, name):
    token_client.post("/v1/hosts/h1/plans", headers=bearer(token))
    assert pinner.records[-1].actor == name
    assert token not in str(pinner.records)


def test_an_empty_token_list_refuses_every_caller(pinner):
    client = create_app(pinner, tokens={}, max_body_bytes=4096).test_client()
    assert client.get("/v1/hosts", headers=bearer("")).status_code == 401


@pytest.mark.parametrize("host", ["localhost", "localhost:8077", "127.0.0.1:8077", "127.9.9.9", "[::1]:8077"])
def test_loopback_names_are_accepted(client, host):
    assert client.get("/v1/hosts", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "10.0.0.1", "[::1", "", "0.0.0.0"]
)
def test_other_host_names_are_refused(client, pinner, host):
    answer = client.post("/v1/hosts/h1/plans", headers={"Host": host})
    assert (answer.status_code, answer.json["error"]["code"]) == (421, "misdirected")
    assert pinner.records == []


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "http://[::1"])
def test_a_page_of_another_site_is_refused(client, pinner, origin):
    answer = client.post("/v1/hosts/h1/plans", headers={"Host": "localhost:8077", "Origin": origin})
    assert (answer.status_code, answer.json["error"]["code"]) == (403, "forbidden")
    assert pinner.records == []


def test_a_page_of_the_same_site_is_accepted(client):
    headers = {"Host": "localhost:8077", "Origin": "http://localhost:8077"}
    assert client.post("/v1/hosts/h1/plans", headers=headers).status_code == 201
