"""The sample configurations of HAProxy and nginx, each with the real program in front of the API."""

import shutil
import socket
import ssl
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from support.fakes.in_memory_service import InMemoryService
from support.server.access import InMemoryTokens, make_control
from support.server.certificates import Authority

from pinner.api.app import create_app
from pinner.api.server import serve
from pinner.server.sockets import listen_tcp

SAMPLES = Path(__file__).parents[3] / "etc/pinner"
BODY = '{"excluded":false}'

pytestmark = [pytest.mark.fault(66)]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def haproxy(sample, folder):
    file = folder / "haproxy.cfg"
    file.write_text(sample)
    return ["haproxy", "-db", "-f", file]


def nginx(sample, folder):
    file = folder / "nginx.conf"
    paths = "".join(
        f"{name}_temp_path {folder}/{name};\n" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    head = f"daemon off;\nuser root;\npid {folder}/pid;\nerror_log {folder}/log;\nevents {{}}\n"
    file.write_text(f"{head}http {{\naccess_log off;\n{paths}{sample}}}\n")
    return ["nginx", "-c", file, "-p", folder, "-e", folder / "log"]


CHUNKED = {"haproxy.cfg.sample": 411, "nginx.conf.sample": 200}
"""A body in chunks: nginx reads it whole and sends its length."""
PROXIES = {"haproxy.cfg.sample": haproxy, "nginx.conf.sample": nginx}


@contextmanager
def behind(name, port, folder):
    """The URL of the proxy in front of the API at this port, and its certificate."""
    if shutil.which(name.partition(".")[0]) is None:
        pytest.skip(f"{name.partition('.')[0]} is not installed")
    authority = Authority.create(folder, "ca")
    certificate, key = authority.issue("localhost")
    both = folder / "proxy.pem"
    both.write_text(certificate.read_text() + key.read_text())
    own = free_port()
    sample = (SAMPLES / name).read_text()
    for text, value in ((":443 ", f"127.0.0.1:{own} "), (" 443 ", f" 127.0.0.1:{own} "), ("8077", str(port))):
        sample = sample.replace(text, value)
    command = PROXIES[name](sample.replace("/etc/pinner/proxy.pem", str(both)), folder)
    log = folder / "stderr"
    with log.open("w") as errors:
        running = subprocess.Popen(list(map(str, command)), stderr=errors)
    try:
        deadline = time.monotonic() + 60
        while True:
            assert running.poll() is None, log.read_text()
            try:
                socket.create_connection(("127.0.0.1", own), timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield f"https://localhost:{own}", str(authority.certificate)
    finally:
        running.terminate()
        running.wait(60)


@pytest.mark.parametrize("name", PROXIES)
def test_a_proxy_passes_on_the_body_and_the_address_of_the_client(name, tmp_path):
    pinner, tokens = InMemoryService(), InMemoryTokens()
    token = tokens.add("admin")
    control = make_control(tokens, trusted=("127.0.0.1",))
    server = serve(create_app(pinner, control=control, max_body_bytes=4096), [listen_tcp("127.0.0.1", 0)])
    guest = pinner.observe("h1", 0.0).guests[0].uuid
    path = f"/v1/hosts/h1/guests/{guest}/excluded"
    try:
        with behind(name, server.url.rpartition(":")[2], tmp_path) as (url, certificate):
            for options in (["--http2"], ["--http1.1", "-H", "Connection: Upgrade", "-H", "Upgrade: h2c"]):
                pinner.excluded.clear()
                answer = put(url + path, token, certificate, options)
                assert '"excluded":false' in answer.replace(" ", ""), (options, answer)
                assert pinner.excluded == {guest: False}
            assert pinner.records[-1].origin == "127.0.0.1"
            with httpx.Client(verify=ssl.create_default_context(cafile=certificate), base_url=url) as http:
                assert http.get("/v1/hosts").status_code == 401
                assert http.get("/healthcheck").status_code == 200
                headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
                chunked = http.put(path, content=iter([BODY.encode()]), headers=headers)
                assert chunked.status_code == CHUNKED[name]
    finally:
        server.stop()


def put(url, token, certificate, options):
    headers = (f"Authorization: Bearer {token}", "Content-Type: application/json", "X-Forwarded-For: 192.0.2.9")
    fields = [part for header in headers for part in ("-H", header)]
    command = ["curl", "-sS", "--cacert", certificate, "-X", "PUT", *fields, "-d", BODY, *options, url]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
