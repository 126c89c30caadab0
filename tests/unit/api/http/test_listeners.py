"""The server's listeners: the peer of each connection, Unix sockets, TLS."""

import os
import socket
import ssl
import subprocess
import sys
import time
import warnings
from contextlib import closing

import httpx
import pytest
from support.server.access import bearer, make_control, one_caller
from support.server.certificates import Authority
from support.server.raw_http import connect, many, read_all

from pinner.api.access.peer import ENVIRON, TcpPeer, UnixPeer
from pinner.api.access.tls import TlsFiles, server_context
from pinner.api.app import create_app
from pinner.api.http.reader import ClientLimits
from pinner.api.server import serve
from pinner.model.errors import HostUnreachable, Invalid
from pinner.server.sockets import listen_tcp
from pinner.service.remote.remote import RemoteService

TOKENS, TEXT = one_caller()
TOKEN = bearer(TEXT)


class Served:
    """A running server, and the peers of the requests that it has answered."""

    def __init__(self, pinner, sockets, tls=None, limits=None):
        app = create_app(
            pinner, control=make_control(TOKENS, client_roles={"ann": "admin", "bob": "reader"}), max_body_bytes=4096
        )
        self.peers, self.schemes = [], []
        inner = app.wsgi_app

        def noting(environ, start_response):
            self.peers.append(environ[ENVIRON])
            self.schemes.append(environ["wsgi.url_scheme"])
            return inner(environ, start_response)

        app.wsgi_app = noting
        self.server = serve(app, sockets, tls, limits)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.stop()


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority.create(tmp_path_factory.mktemp("tls"), "lab")


@pytest.fixture(scope="module")
def files(authority):
    certificate, key = authority.issue("server")
    return {"certificate": str(certificate), "key": str(key)}


def client(authority, *certificate):
    """TLS settings of a client, with an own certificate where one is given."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    if certificate:
        context.load_cert_chain(*certificate)
    return context


def https(pinner, limits=None, **files):
    return Served(pinner, [listen_tcp("127.0.0.1", 0)], server_context(TlsFiles(**files)), limits)


def unix_socket(path):
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(path))
    return bound


def test_the_peer_of_a_unix_socket_is_a_process(pinner, tmp_path):
    path = tmp_path / "api.sock"
    with Served(pinner, [unix_socket(path)]) as served:
        assert served.server.urls == (f"unix:{path}",)
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as http:
            assert http.get("http://localhost/healthcheck").json() == {"status": "ok"}
    assert served.peers == [UnixPeer(os.geteuid(), os.getpid())]


def test_the_peer_of_a_tcp_socket_is_an_address(pinner):
    both = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    with Served(pinner, [both]) as served:
        port = httpx.URL(served.server.url).port
        for host in ("127.0.0.1", "[::1]"):
            httpx.get(f"http://{host}:{port}/healthcheck")
    assert served.peers == [TcpPeer("127.0.0.1"), TcpPeer("::1")]


def test_one_server_serves_several_sockets(pinner, tmp_path, authority, files):
    """Only the TCP sockets speak TLS."""
    sockets = [unix_socket(tmp_path / "api.sock"), listen_tcp("127.0.0.1", 0), listen_tcp("::1", 0)]
    with Served(pinner, sockets, server_context(TlsFiles(**files))) as served:
        schemes = [url.partition(":")[0] for url in served.server.urls]
        assert schemes == ["unix", "https", "https"]
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(tmp_path / "api.sock"))) as http:
            assert http.get("http://localhost/healthcheck").status_code == 200
        url = f"https://localhost:{httpx.URL(served.server.urls[1]).port}"
        assert httpx.get(f"{url}/healthcheck", verify=client(authority)).status_code == 200
    assert [type(peer) for peer in served.peers] == [UnixPeer, TcpPeer]


def test_stop_closes_the_sockets(pinner, tmp_path):
    path = tmp_path / "api.sock"
    with Served(pinner, [unix_socket(path)]):
        pass
    with socket.socket(socket.AF_UNIX) as peer, pytest.raises(ConnectionRefusedError):
        peer.connect(str(path))


def test_a_verified_client_certificate_names_the_peer(pinner, authority, files):
    with https(pinner, **files, client_ca=str(authority.certificate)) as served:
        for tls in (client(authority, *authority.issue("ann")), client(authority)):
            assert httpx.get(f"{served.server.url}/healthcheck", verify=tls).status_code == 200
    assert served.peers == [TcpPeer("127.0.0.1", "ann"), TcpPeer("127.0.0.1")]
    assert served.schemes == ["https"] * 2


def test_a_verified_client_certificate_has_the_role_of_its_common_name(pinner, authority, files):
    """[api] tls_client_roles gives ann the role admin, bob the role reader, and eve none."""
    wanted = {"ann": (200, 201), "bob": (200, 403), "eve": (403, 403)}
    with https(pinner, **files, client_ca=str(authority.certificate)) as served:
        for name, statuses in wanted.items():
            tls = client(authority, *authority.issue(name))
            with httpx.Client(verify=tls, base_url=served.server.url) as http:
                assert (
                    http.get("/v1/hosts").status_code,
                    http.post("/v1/hosts/h1/plans", json={}).status_code,
                ) == statuses
        assert httpx.get(f"{served.server.url}/v1/hosts", verify=client(authority)).status_code == 401
    assert [record.actor for record in pinner.records] == ["ann"]


def test_a_certificate_without_an_authority_names_nobody(pinner, authority, files):
    """Without tls_client_ca the server does not ask for certificates."""
    with https(pinner, **files) as served:
        tls = client(authority, *authority.issue("ann"))
        assert httpx.get(f"{served.server.url}/healthcheck", verify=tls).status_code == 200
    assert served.peers == [TcpPeer("127.0.0.1")]


def test_a_certificate_of_another_authority_is_refused(pinner, authority, files, tmp_path):
    other = Authority.create(tmp_path, "other")
    with https(pinner, **files, client_ca=str(authority.certificate)) as served:
        with pytest.raises((httpx.ReadError, httpx.ConnectError, httpx.RemoteProtocolError)):
            httpx.get(f"{served.server.url}/healthcheck", verify=client(authority, *other.issue("ann")))
        assert httpx.get(f"{served.server.url}/healthcheck", verify=client(authority)).status_code == 200
    assert served.peers == [TcpPeer("127.0.0.1")]


def test_clients_without_a_certificate_are_refused_where_one_is_required(pinner, authority, files):
    with https(pinner, **files, client_ca=str(authority.certificate), client_required=True) as served:
        with pytest.raises((httpx.ReadError, httpx.ConnectError, httpx.RemoteProtocolError)):
            httpx.get(f"{served.server.url}/healthcheck", verify=client(authority))
        tls = client(authority, *authority.issue("ann"))
        assert httpx.get(f"{served.server.url}/healthcheck", verify=tls).status_code == 200
    assert served.peers == [TcpPeer("127.0.0.1", "ann")]


def test_a_version_below_tls_1_2_is_refused(pinner, authority, files):
    with https(pinner, **files) as served:
        old = client(authority)
        old.set_ciphers("ALL:@SECLEVEL=0")
        with warnings.catch_warnings(action="ignore"):
            old.minimum_version = ssl.TLSVersion.TLSv1
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with connect(served.server.url) as peer, pytest.raises((ssl.SSLError, ConnectionResetError)):
            old.wrap_socket(peer, server_hostname="localhost")


def test_plain_http_on_a_tls_port_is_closed(pinner, files):
    with https(pinner, **files) as served, connect(served.server.url) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"HTTP/1.1 200" not in read_all(peer)


@pytest.mark.fault(45)
def test_unfinished_handshakes_are_bounded_in_number_and_time(pinner, authority, files):
    limits = ClientLimits(head_seconds=1.5, connections=30)
    with https(pinner, limits, **files) as served, many(served.server.url, 60) as peers:
        time.sleep(0.2)
        assert httpx.get(f"{served.server.url}/healthcheck", verify=client(authority)).status_code == 200
        assert read_all(peers[0]) == b""
        began = time.monotonic()
        assert read_all(peers[-1]) == b""
        assert time.monotonic() - began < 5


def test_large_answers_and_streams_pass_through_tls(pinner, authority, files):
    with (
        https(pinner, **files) as served,
        httpx.Client(verify=client(authority), base_url=served.server.url, headers=TOKEN) as http,
    ):
        assert len(http.get("/openapi.json").json()["paths"]) > 10
        plan = http.post("/v1/hosts/h1/plans", json={}).json()["id"]
        run = http.post(f"/v1/plans/{plan}/apply", json={}).json()["id"]
        assert http.get(f"/v1/runs/{run}/events").text.count("event: ") == 4


def test_the_cli_trusts_the_authorities_of_the_environment(pinner, authority, files, monkeypatch):
    with https(pinner, **files) as served:
        with closing(RemoteService(served.server.url, TEXT)) as stranger, pytest.raises(HostUnreachable):
            stranger.hosts()
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
        with closing(RemoteService(served.server.url, TEXT)) as known:
            assert known.hosts() == ("h1",)


RUN = "import sys; from pinner.cli.main import main; sys.exit(main())"
WRONG = {
    "no file": ({"certificate": "/nowhere.pem"}, "[api] tls_certificate", "No such file"),
    "no key": ({"key": "/nowhere.key"}, "[api] tls_key", "No such file"),
    "another key": ({"key": "{other}"}, "[api] tls_certificate, tls_key", "KEY_VALUES_MISMATCH"),
    "a key with a passphrase": ({"key": "{secret}"}, "[api] tls_certificate, tls_key", "passphrase"),
    "no certificate in the file": ({"certificate": "{text}"}, "[api] tls_certificate, tls_key", "PEM"),
    "no authority": ({"client_ca": "/nowhere.pem"}, "[api] tls_client_ca", "No such file"),
    "no authority in the file": ({"client_ca": "{text}"}, "[api] tls_client_ca", "PEM"),
    "required without an authority": ({"client_required": True}, "[api] tls_client_required", "tls_client_ca"),
    "only a key": ({"certificate": ""}, "[api] tls_key", "tls_certificate"),
}


@pytest.mark.parametrize(("changed", "field", "reason"), WRONG.values(), ids=WRONG)
def test_wrong_files_are_named(authority, files, tmp_path, changed, field, reason):
    text, secret = tmp_path / "text", tmp_path / "secret"
    text.write_text("nothing\n")
    encrypt = ["openssl", "ec", "-aes256", "-passout", "pass:s3cret", "-in", files["key"], "-out", str(secret)]
    subprocess.run(encrypt, check=True, capture_output=True)
    names = {"other": authority.issue("other")[1], "text": text, "secret": secret}
    given = {name: value.format(**names) if isinstance(value, str) else value for name, value in changed.items()}
    with pytest.raises(Invalid) as refused:
        server_context(TlsFiles(**(files | given)))
    assert refused.value.details["field"] == field
    assert reason in str(refused.value)


def test_a_wrong_certificate_ends_the_server_with_status_2_and_one_line(tmp_path):
    config = tmp_path / "pinner.conf"
    config.write_text(f"[agent]\nstate_dir = {tmp_path}\n[api]\ntls_certificate = /nowhere.pem\n")
    command = [sys.executable, "-c", RUN, "serve", "--config-file", str(config), "--port", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert ended.stderr.splitlines() == [
        "pinner: error: [api] tls_certificate: '/nowhere.pem' is not valid: "
        "a file that can be read (No such file or directory)"
    ]
