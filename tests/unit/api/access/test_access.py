"""Access: who may call the API over the Unix socket, with a token, or with a client certificate."""

import logging
import os
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from support.fakes.in_memory_service import InMemoryService
from support.server.access import (
    LOCAL,
    LOCAL_USER,
    AuditList,
    InMemoryTokens,
    bearer,
    client_of,
    make_control,
    utc_now,
    wrong_secret,
)

from pinner.api.access.credentials import FRESH_SECONDS
from pinner.api.access.peer import TcpPeer, UnixPeer, parse_networks
from pinner.api.app import create_app

PUBLIC = ["/", "/healthcheck", "/openapi.json"]
PROTECTED = ["/v1/hosts", "/v1/audit", "/v1/runs/r/events", "/v1/no/such/path", "/elsewhere"]
LOOPBACK = TcpPeer("127.0.0.1")


@pytest.fixture
def tokens():
    return InMemoryTokens()


@pytest.fixture
def trail():
    return AuditList()


@pytest.fixture
def app_with(pinner: InMemoryService, tokens, trail):
    """The application with these tokens and this audit trail: app_with(client_roles=...)."""

    def make(**settings):
        return create_app(pinner, control=make_control(tokens, trail, **settings), max_body_bytes=4096)

    return make


@pytest.fixture
def tcp(app_with):
    """A client over TCP from this machine, without credentials."""
    return client_of(app_with(), LOOPBACK)


def error(answer):
    return answer.status_code, answer.json["error"]["code"]


@pytest.mark.parametrize("path", PUBLIC)
def test_public_paths_need_no_credentials(tcp, path):
    assert tcp.get(path, headers={"Host": "pinner.example.org"}).status_code == 200


@pytest.mark.fault(39)
@pytest.mark.fault(44)
@pytest.mark.parametrize("path", PROTECTED)
@pytest.mark.parametrize(
    "header",
    [
        "Bearer wrong",
        "Bearer ",
        "Bearer",
        "",
        "Basic s3cret",
        "Bearer schlüssel",
        "Bearer pinner_000000000001_",
        f"Bearer pinner_000000000001_{'0' * 64}",
        f"Bearer pinner_000000000009_{'0' * 63}1",
        f"Bearer PINNER_000000000001_{'0' * 63}1",
        f"Bearer pinner_000000000001_{'0' * 63}1 more",
        f"Basic pinner_000000000001_{'0' * 63}1",
        f"Bearer pinner_000000000001_{'0' * 63}1, Bearer x",
    ],
)
def test_wrong_tokens_are_refused(tcp, tokens, path, header, caplog):
    """The right one is pinner_000000000001_00...01."""
    tokens.add("admin")
    with caplog.at_level(logging.DEBUG):
        answer = tcp.get(path, headers={"Authorization": header})
    assert error(answer) == (401, "unauthorized")
    assert answer.headers["WWW-Authenticate"].lower().startswith("bearer")
    secret = header.rpartition("_")[2]
    assert len(secret) < 5 or secret not in caplog.text + answer.text


@pytest.mark.fault(43)
@pytest.mark.parametrize("path", PROTECTED)
@pytest.mark.parametrize("host", ["localhost:8077", "127.0.0.1", "pinner.example"])
def test_loopback_needs_credentials_too(tcp, path, host):
    answer = tcp.get(path, headers={"Host": host})
    assert error(answer) == (401, "unauthorized")
    assert "pinner-manage token create" in answer.json["error"]["message"]


@pytest.mark.fault(43)
def test_a_peer_that_the_server_does_not_name_needs_credentials(app_with):
    """Another WSGI server may listen on a Unix socket of its own, which anybody may be allowed to use."""
    client = app_with().test_client()
    client.environ_base["REMOTE_ADDR"] = ""
    assert error(client.get("/v1/hosts")) == (401, "unauthorized")


def test_the_token_names_the_actor_and_its_address_the_origin(tcp, tokens, pinner):
    token = tokens.add("operator", "ann")
    tcp.post("/v1/hosts/h1/plans", headers=bearer(token), json={})
    assert pinner.records[-1].actor == "ann"
    assert token not in str(pinner.records)


@pytest.mark.fault(44)
def test_a_revoked_or_expired_token_is_refused_at_once(app_with, tokens, trail):
    now, seconds = [utc_now()], [0.0]
    client = client_of(app_with(now=lambda: now[0], clock=lambda: seconds[0]), LOOPBACK)
    token = tokens.add("reader", expires_at=now[0] + timedelta(seconds=1))
    other = tokens.add("reader")
    assert client.get("/v1/hosts", headers=bearer(token)).status_code == 200
    now[0] += timedelta(seconds=1)
    answer = client.get("/v1/hosts", headers=bearer(token))
    assert error(answer) == (401, "unauthorized")
    assert "token 000000000001 has expired" in answer.json["error"]["message"]
    assert client.get("/v1/hosts", headers=bearer(other)).status_code == 200
    tokens.rows["000000000002"] = replace(tokens.rows["000000000002"], revoked_at=now[0])
    seconds[0] += FRESH_SECONDS
    answer = client.get("/v1/hosts", headers=bearer(other))
    assert error(answer) == (401, "unauthorized")
    assert "token 000000000002 is revoked" in answer.json["error"]["message"]
    assert [event.result[:4] for event in trail] == ["401:"] * 2


def test_only_the_holder_learns_that_a_token_is_revoked(tcp, tokens):
    revoked = tokens.add("reader", revoked_at=utc_now())
    guessed = tcp.get("/v1/hosts", headers=bearer(wrong_secret(revoked))).json["error"]["message"]
    unknown = tcp.get("/v1/hosts", headers=bearer(wrong_secret(revoked).replace("01_", "02_"))).json["error"]["message"]
    assert guessed.replace("01 ", "02 ") == unknown


def test_the_unix_socket_is_for_administrators(app_with, pinner):
    client = client_of(app_with(), LOCAL)
    assert client.put("/v1/hosts/h1/policy", json={}).status_code == 200
    assert pinner.records[-1].actor == LOCAL_USER
    assert pinner.records[-1].origin == f"process {os.getpid()}"


def test_a_uid_without_a_user_is_named_by_its_number(app_with, pinner):
    client_of(app_with(), UnixPeer(54321, 7)).post("/v1/hosts/h1/snapshot", json={})
    assert pinner.records[-1].actor == "uid 54321"


@pytest.mark.parametrize("name", ["policy", "Policy", "p\u043elicy", "pinner", "uid 7", " "])
def test_a_user_named_like_a_part_of_pinner_is_shown_by_its_number(app_with, pinner, monkeypatch, name):
    monkeypatch.setattr("pwd.getpwuid", lambda uid: SimpleNamespace(pw_name=name, pw_uid=uid))
    client_of(app_with(), UnixPeer(54321, 7)).post("/v1/hosts/h1/snapshot", json={})
    assert pinner.records[-1].actor == "uid 54321"


def test_root_without_a_name_may_send_its_number(app_with, pinner, monkeypatch):
    """As the CLI does in a container without users."""
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {}[uid])
    root = client_of(app_with(), UnixPeer(0, 7))
    root.post("/v1/hosts/h1/snapshot", headers={"X-Pinner-Actor": "uid%200"}, json={})
    assert pinner.records[-1].actor == "uid 0"


def test_root_names_the_person_for_whom_it_calls(app_with, pinner):
    root = client_of(app_with(), UnixPeer(0, 7))
    root.post("/v1/hosts/h1/snapshot", headers={"X-Pinner-Actor": "EXAMPLE%5Cj%C3%BCrg"}, json={})
    assert (pinner.records[-1].actor, pinner.records[-1].origin) == ("EXAMPLE\\jürg", "process 7")


@pytest.mark.parametrize(
    ("peer", "actor"),
    [
        (UnixPeer(54321, 7), "ann"),
        (UnixPeer(54321, 7), ""),
        (LOOPBACK, "ann"),
        (UnixPeer(0, 7), ""),
        (UnixPeer(0, 7), "x" * 256),
        (UnixPeer(0, 7), "a%0Ab"),
        (UnixPeer(0, 7), "policy"),
        (UnixPeer(0, 7), "Unauthenticated"),
        (UnixPeer(0, 7), "%20"),
        (UnixPeer(0, 7), "p%D0%BElicy"),
        (UnixPeer(0, 7), "pinner"),
        (UnixPeer(0, 7), "uid%207"),
    ],
)
def test_other_actors_are_refused(app_with, tokens, pinner, peer, actor):
    headers = {"X-Pinner-Actor": actor, **bearer(tokens.add("admin"))}
    answer = client_of(app_with(), peer).post("/v1/hosts/h1/snapshot", headers=headers, json={})
    assert error(answer) == (400, "invalid")
    assert answer.json["error"]["details"]["field"] == "X-Pinner-Actor"
    assert pinner.records == []


@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded"])
def test_a_proxy_on_the_unix_socket_is_refused(app_with, header):
    """Its clients would all be administrators."""
    answer = client_of(app_with(), LOCAL).get("/v1/hosts", headers={header: "for=192.0.2.1"})
    assert error(answer) == (403, "forbidden")


def test_a_client_certificate_has_the_role_of_its_name(app_with, pinner):
    app = app_with(client_roles={"ceilometer": "reader", "deploy": "operator"})
    for name, reads, plans in (("ceilometer", 200, 403), ("deploy", 200, 201), ("other", 403, 403), ("", 401, 401)):
        client = client_of(app, TcpPeer("192.0.2.1", name))
        assert client.get("/v1/hosts").status_code == reads, name
        assert client.post("/v1/hosts/h1/plans", json={}).status_code == plans, name
    assert [record.actor for record in pinner.records] == ["deploy"]


def test_a_certificate_without_a_configured_role_is_refused(app_with):
    assert error(client_of(app_with(), TcpPeer("192.0.2.1", "deploy")).get("/v1/hosts")) == (403, "forbidden")


def test_a_token_counts_more_than_a_certificate(app_with, tokens):
    client = client_of(app_with(client_roles={"deploy": "admin"}), TcpPeer("192.0.2.1", "deploy"))
    assert client.put("/v1/hosts/h1/policy", json={}).status_code == 200
    assert client.put("/v1/hosts/h1/policy", json={}, headers=bearer(tokens.add("reader"))).status_code == 403
    assert client.put("/v1/hosts/h1/policy", json={}, headers=bearer("wrong")).status_code == 401


def test_the_certificate_of_a_trusted_proxy_is_not_its_clients(app_with):
    app = app_with(client_roles={"proxy": "admin"}, trusted=("192.0.2.1",))
    assert client_of(app, TcpPeer("192.0.2.1", "proxy")).get("/v1/hosts").status_code == 401


def test_the_origin_is_the_client_of_a_trusted_proxy(app_with, tokens, pinner):
    client = client_of(app_with(trusted=("192.0.2.0/28",)), TcpPeer("192.0.2.1"), tokens.add("admin"))
    client.post("/v1/hosts/h1/snapshot", headers={"X-Forwarded-For": "10.0.0.1, 198.51.100.7, 192.0.2.2"}, json={})
    assert pinner.records[-1].origin == "198.51.100.7"
    other = client_of(client.application, TcpPeer("203.0.113.5"), tokens.add("admin"))
    other.post("/v1/hosts/h1/snapshot", headers={"X-Forwarded-For": "10.0.0.1"}, json={})
    assert pinner.records[-1].origin == "203.0.113.5"


@pytest.mark.parametrize("method", ["post", "put", "delete", "patch"])
@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "http://[::1"])
@pytest.mark.parametrize("peer", [LOCAL, TcpPeer("192.0.2.1", "browser")])
def test_a_page_of_another_site_is_refused(app_with, pinner, method, origin, peer):
    """A browser adds its client certificate to the requests of any page."""
    client = client_of(app_with(client_roles={"browser": "admin"}), peer)
    path = "/v1/hosts/h1/plans" if method == "post" else "/v1/hosts/h1/policy"
    answer = getattr(client, method)(path, json={}, headers={"Host": "localhost:8077", "Origin": origin})
    assert error(answer) == (403, "forbidden")
    assert pinner.records == []


def test_a_page_of_the_same_site_is_accepted(client):
    headers = {"Host": "localhost:8077", "Origin": "http://localhost:8077"}
    assert client.post("/v1/hosts/h1/plans", headers=headers, json={}).status_code == 201
    assert client.get("/v1/hosts", headers={"Origin": "https://evil.example"}).status_code == 200


@pytest.mark.fault(44)
def test_guessing_is_slowed_down_for_the_guesser_alone(app_with, tokens):
    seconds = [0.0]
    app = app_with(clock=lambda: seconds[0])
    guesser, other = client_of(app, TcpPeer("192.0.2.1")), client_of(app, TcpPeer("192.0.2.2"))
    waits = []
    for _ in range(15):
        answer = guesser.get("/v1/hosts", headers=bearer("wrong"))
        if answer.status_code == 429:
            assert error(answer) == (429, "too_many_requests")
            waits.append(int(answer.headers["Retry-After"]))
            seconds[0] += waits[-1]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60, 60]
    assert other.get("/v1/hosts", headers=bearer("wrong")).status_code == 401
    assert guesser.get("/v1/hosts").status_code == 401, "no guess, so no wait"
    assert guesser.get("/healthcheck").status_code == 200


@pytest.mark.fault(44)
def test_a_neighbour_behind_the_same_address_locks_nobody_out(tcp, tokens):
    used, unused = tokens.add("reader"), tokens.add("reader")
    assert tcp.get("/v1/hosts", headers=bearer(used)).status_code == 200
    for _ in range(50):
        tcp.get("/v1/hosts", headers=bearer("wrong"))
        tcp.get("/v1/hosts", headers=bearer(wrong_secret(used)))
    assert tcp.get("/v1/hosts", headers=bearer("wrong")).status_code == 429
    assert tcp.get("/v1/hosts", headers=bearer(used)).status_code == 200, "it was accepted before"
    assert tcp.get("/v1/hosts", headers=bearer(unused)).status_code == 200, "nobody has guessed at this one"


@pytest.mark.fault(44)
def test_guesses_at_one_token_are_not_even_answered_truly(app_with, tokens):
    seconds = [0.0]
    client = client_of(app_with(clock=lambda: seconds[0]), LOOPBACK)
    token = tokens.add("reader")
    for _ in range(6):
        client.get("/v1/hosts", headers=bearer(wrong_secret(token)))
    answer = client.get("/v1/hosts", headers=bearer(token))
    assert error(answer) == (429, "too_many_requests")
    seconds[0] += int(answer.headers["Retry-After"])
    assert client.get("/v1/hosts", headers=bearer(token)).status_code == 200
    elsewhere = client_of(client.application, TcpPeer("192.0.2.2"))
    assert elsewhere.get("/v1/hosts", headers=bearer(token)).status_code == 200


def test_a_body_that_is_too_large_is_refused_before_the_credentials(tcp):
    assert tcp.post("/v1/hosts/h1/plans", data=b"x" * 5000).status_code == 413


def test_the_server_answers_no_options(client):
    assert client.options("/v1/hosts").status_code == 405


def test_networks_are_parsed():
    assert [str(each) for each in parse_networks(["10.0.0.7", "2001:db8::/64"], "f")] == [
        "10.0.0.7/32",
        "2001:db8::/64",
    ]


@pytest.mark.parametrize(("path", "status"), [("/", 405), ("/healthcheck", 405), ("/v1", 405), ("/v1/hosts", 401)])
def test_another_method_of_a_public_path_needs_no_credentials_either(app_with, path, status):
    assert app_with().test_client().open(path, method="TRACE").status_code == status
