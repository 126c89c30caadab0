"""Access: a token over TCP, the kernel's credentials on the Unix socket."""

import logging
from urllib.parse import quote

import pytest
from support.in_memory_service import InMemoryService
from support.unix_http import on_unix_socket

from pinner.api.app import create_app
from pinner.api.peer import ENVIRON, TcpPeer, UnixPeer

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


@pytest.mark.fault(43)
@pytest.mark.parametrize("peer", [None, TcpPeer("127.0.0.1"), TcpPeer("::1")])
def test_without_tokens_every_call_over_tcp_is_refused(pinner, peer):
    """Also where the server in front names no peer, and from this machine."""
    client = create_app(pinner, tokens={}, max_body_bytes=4096).test_client()
    if peer:
        client.environ_base[ENVIRON] = peer
    answer = client.post("/v1/hosts/h1/plans", headers={"X-Pinner-Actor": "root"})
    assert (answer.status_code, answer.json["error"]["code"]) == (401, "unauthorized")
    assert pinner.records == []


@pytest.mark.parametrize(("uid", "name"), [(0, "root"), (65534, "nobody"), (4_000_000_000, "uid 4000000000")])
def test_a_caller_on_the_unix_socket_is_the_user_that_the_kernel_names(client, pinner, uid, name):
    assert on_unix_socket(client, UnixPeer(uid, 7)).post("/v1/hosts/h1/plans").status_code == 201
    assert (pinner.records[-1].actor, pinner.records[-1].origin) == (name, "process 7")


@pytest.mark.parametrize("actor", ["ann", "Ann Ä.", "x" * 255])
def test_root_may_name_the_person_who_called_sudo(client, pinner, actor):
    on_unix_socket(client, UnixPeer(0, 7)).post("/v1/hosts/h1/plans", headers={"X-Pinner-Actor": quote(actor)})
    assert pinner.records[-1].actor == actor


@pytest.mark.fault(43)
def test_another_user_may_not_name_an_actor(client, pinner):
    answer = client.post("/v1/hosts/h1/plans", headers={"X-Pinner-Actor": "root"})
    assert (answer.status_code, answer.json["error"]["code"]) == (403, "forbidden")
    assert pinner.records == []


@pytest.mark.parametrize("actor", ["", "a%0Ab", "x" * 256])
def test_a_name_that_is_no_name_is_refused(client, pinner, actor):
    answer = on_unix_socket(client, UnixPeer(0, 7)).get("/v1/hosts", headers={"X-Pinner-Actor": actor})
    assert (answer.status_code, answer.json["error"]["details"]["field"]) == (400, "X-Pinner-Actor")


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "http://[::1"])
def test_a_page_of_another_site_is_refused(client, pinner, origin):
    answer = client.post("/v1/hosts/h1/plans", headers={"Host": "localhost:8077", "Origin": origin})
    assert (answer.status_code, answer.json["error"]["code"]) == (403, "forbidden")
    assert pinner.records == []


def test_a_page_of_the_same_site_is_accepted(client):
    headers = {"Host": "localhost:8077", "Origin": "http://localhost:8077"}
    assert client.post("/v1/hosts/h1/plans", headers=headers).status_code == 201
