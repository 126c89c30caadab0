"""Access with real processes: another user of this machine, and tokens that pinner-manage makes and revokes."""

import subprocess
import time

import httpx
import pytest
from support.server import warm
from support.server.access import bearer, make_control, wrong_secret
from support.server.real_service import real_service

from pinner.api.app import create_app
from pinner.api.server import serve
from pinner.model.page import PageRequest
from pinner.model.run.token import parse_token
from pinner.server.sockets import listen_tcp
from pinner.store.repositories import open_store

OTHER_UID = 54321
"""A user id that has no user and no rights."""
ASK = """
import sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"Authorization": sys.argv[2]} if sys.argv[2] else {})
try:
    print(urllib.request.urlopen(request).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""
needs_root = pytest.mark.needs("root")


class Server:
    """A served database, and pinner-manage for it."""

    def __init__(self, folder, url, audit):
        self.url = url
        self.audit = audit
        self.config = folder / "pinner.conf"
        self.config.write_text(f"[database]\nconnection = sqlite:///{folder}/pinner.sqlite\n")

    def manage(self, *arguments):
        done = warm.run("token", *arguments, "--config-file", self.config, code=warm.MANAGE)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def status(self, token):
        return httpx.get(f"{self.url}/v1/hosts", headers=bearer(token)).status_code

    def refusals(self):
        records = self.audit.list(None, None, None, PageRequest(100)).items
        return [record for record in records if record.action == "request.refuse"]


@pytest.fixture
def server(tmp_path):
    with real_service(tmp_path) as (pinner, _), open_store(f"sqlite:///{tmp_path}/pinner.sqlite") as store:
        control = make_control(store.tokens, store.audit)
        running = serve(create_app(pinner, control=control, max_body_bytes=4096), [listen_tcp("127.0.0.1", 0)])
        yield Server(tmp_path, running.url, store.audit)
        running.stop()
        control.refusals.close()


@pytest.mark.fault(43)
@needs_root
@pytest.mark.parametrize("authorization", ["", "Bearer wrong", f"Bearer pinner_{'0' * 12}_{'0' * 64}"])
def test_another_user_of_this_machine_is_refused(server, authorization):
    command = ["/usr/bin/python3", "-I", "-c", ASK, f"{server.url}/v1/hosts", authorization]
    asked = subprocess.run(command, user=OTHER_UID, group=OTHER_UID, extra_groups=[], capture_output=True, text=True)
    assert asked.stdout.strip() == "401", asked.stderr
    (record,) = server.refusals()
    assert (record.actor, record.origin, record.subject) == ("unauthenticated", "127.0.0.1", "GET /v1/hosts")


@pytest.mark.fault(44)
def test_a_token_is_refused_within_a_second_of_its_revocation(server):
    token, other = (server.manage("create", name, "--role", "reader") for name in ("ann", "bob"))
    assert (server.status(token), server.status(other)) == (200, 200)
    server.manage("revoke", parse_token(token).id, "--yes")
    time.sleep(1.0)
    assert (server.status(token), server.status(other)) == (401, 200)


@pytest.mark.fault(44)
def test_guessing_is_slowed_down_and_the_trail_stays_small(server):
    token = server.manage("create", "ann", "--role", "reader")
    assert server.status(token) == 200
    with httpx.Client(base_url=server.url) as http:
        began = time.monotonic()
        answers = [http.get("/v1/hosts", headers=bearer(wrong_secret(token))) for _ in range(300)]
        assert time.monotonic() - began < 60, "no answer waits"
    statuses = [answer.status_code for answer in answers]
    assert statuses.count(401) == 5
    assert statuses.count(429) == 295
    assert all(1 <= int(answer.headers["Retry-After"]) <= 60 for answer in answers if answer.status_code == 429)
    assert len(server.refusals()) <= 20
    assert server.status(token) == 200
    assert wrong_secret(token).rpartition("_")[2] not in str(server.refusals())
