"""Which role may do what: every operation with every role, and the files with which an operator changes that."""

import itertools
import os
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from flask import Flask
from oslo_policy.policy import Enforcer
from support.fakes.in_memory_service import SIGNED_HEAD
from support.server.access import InMemoryTokens, bearer, client_of, make_control
from tables.role_table import DOCUMENT, expected

from pinner import codec, conf
from pinner.api.access import access
from pinner.api.access.credentials import Identity
from pinner.api.access.peer import TcpPeer
from pinner.api.access.policies import RELOAD_SECONDS, Authorizer, list_rules, rules_of
from pinner.api.app import create_app
from pinner.model.errors import Invalid
from pinner.model.run.agent_audit import Anchor
from pinner.model.run.token import ROLES

REPOSITORY = Path(__file__).parents[4]
GUEST = "6a5b7a0e-0000-4000-8000-000000000001"
READ, CHANGE, SET, REPORT = "reader operator admin", "operator admin", "admin", "hook admin"
EVENT = {"guest": GUEST, "event": "started"}
ANCHOR = codec.plain(Anchor(1, (SIGNED_HEAD,)))
OPERATIONS = {
    ("GET", "/v1/health"): (READ, 200),
    ("GET", "/metrics"): (READ, 200),
    ("GET", "/v1/strategies"): (READ, 200),
    ("GET", "/v1/hosts"): (READ, 200),
    ("GET", "/v1/hosts/h1"): (READ, 200),
    ("GET", "/v1/hosts/h1/topology"): (f"{READ} hook", 200),
    ("GET", "/v1/hosts/h1/capacity"): (READ, 200),
    ("GET", "/v1/hosts/h1/findings"): (READ, 200),
    ("GET", "/v1/hosts/h1/measures"): (READ, 200),
    ("GET", "/v1/hosts/h1/guests/6a5b7a0e-0000-4000-8000-000000000001/blame"): (CHANGE, 200),
    ("POST", "/v1/hosts/h1/what-if"): (READ, 200),
    ("GET", "/v1/hosts/h1/interrupts"): (READ, 200),
    ("GET", "/v1/hosts/h1/processes"): (READ, 200),
    ("GET", "/v1/hosts/h1/guests"): (READ, 200),
    ("POST", "/v1/hosts/h1/snapshot"): (CHANGE, 201),
    ("GET", "/v1/snapshots/none"): (READ, 404),
    ("POST", "/v1/hosts/h1/plans"): (CHANGE, 201),
    ("GET", "/v1/plans"): (READ, 200),
    ("GET", "/v1/plans/none"): (READ, 404),
    ("GET", "/v1/plans/none/explanation?guest=g1"): (READ, 404),
    ("POST", "/v1/plans/none/apply"): (CHANGE, 404),
    ("GET", "/v1/runs"): (READ, 200),
    ("GET", "/v1/runs/none"): (READ, 404),
    ("GET", "/v1/runs/none/outcome"): (READ, 404),
    ("GET", "/v1/runs/none/events"): (READ, 404),
    ("POST", "/v1/runs/none/rollback"): (CHANGE, 404),
    ("POST", "/v1/hosts/h1/rollback"): (CHANGE, 202),
    ("POST", "/v1/plans/none/probe"): (CHANGE, 404),
    ("GET", "/v1/probes/none"): (READ, 404),
    ("DELETE", "/v1/probes/none"): (CHANGE, 404),
    ("GET", "/v1/hosts/h1/policy"): (READ, 404),
    ("PUT", "/v1/hosts/h1/policy"): (SET, 200),
    ("DELETE", "/v1/hosts/h1/policy"): (SET, 404),
    ("GET", "/v1/hosts/h1/drift"): (READ, 200),
    ("PUT", f"/v1/hosts/h1/guests/{GUEST}/excluded"): (CHANGE, 200),
    ("POST", "/v1/events/guest-started"): (REPORT, 202),
    ("POST", "/v1/events/guest-leaving"): (REPORT, 202),
    ("POST", "/v1/events/guest-gone"): (REPORT, 202),
    ("GET", "/v1/audit"): (READ, 200),
    ("GET", "/v1/audit/verify"): (READ, 200),
    ("POST", "/v1/audit/verify"): (READ, 200),
    ("GET", "/v1/audit/anchor"): (READ, 200),
    ("GET", "/v1/audit/export"): (SET, 200),
}
"""The documented defaults: the roles that each operation accepts, and the status of its answer then."""


@pytest.fixture
def tokens():
    return InMemoryTokens()


@pytest.fixture
def client(pinner, tokens):
    return client_of(create_app(pinner, control=make_control(tokens), max_body_bytes=4096), TcpPeer("192.0.2.1"))


@pytest.mark.fault(39)
@pytest.mark.fault(44)
@pytest.mark.parametrize("role", [*ROLES, ""])
@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_each_operation_with_each_role(client, pinner, tokens, method, path, role):
    allowed, status = OPERATIONS[method, path]
    before = pinner.state()
    body = EVENT if "/events/guest" in path else ANCHOR if path == "/v1/audit/verify" else {}
    headers = bearer(tokens.add(role)) if role else {}
    answer = client.open(path, method=method, json=body if method != "GET" else None, headers=headers)
    expected = status if role in allowed.split() else 403 if role else 401
    assert answer.status_code == expected, answer.text
    if expected in (401, 403):
        assert pinner.state() == before


def test_the_table_has_every_operation(client):
    document = client.get("/openapi.json").json
    routes = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    tried = {(method, path.replace("h1", "{host}").replace(GUEST, "{guest}")) for method, path in OPERATIONS}
    for noun in ("plan", "run", "snapshot", "probe"):
        tried = {(method, path.replace(f"{noun}s/none", f"{noun}s/{{{noun}}}")) for method, path in tried}
    tried = {(method, path.partition("?")[0]) for method, path in tried}
    assert tried == {(method, path) for method, path in routes if path.startswith("/v1/") or path == "/metrics"}


def test_every_route_has_exactly_one_rule_and_every_rule_a_route(client):
    routes = client.application.url_map
    rules = rules_of(routes, access.PUBLIC)
    assert set(rules) == {route.endpoint for route in routes.iter_rules()} - access.PUBLIC
    operations = [rule.name for rule in list_rules() if rule.name.startswith("pinner:")]
    assert sorted(rules.values()) == sorted(operations)


def test_a_route_without_a_rule_is_found_before_the_first_request(monkeypatch):
    app = Flask("other")
    app.add_url_rule("/v1/new", "new", lambda: "", methods=["GET"])
    with pytest.raises(LookupError, match=r"\['GET', 'HEAD', 'OPTIONS'\] /v1/new needs exactly one rule"):
        rules_of(app.url_map, frozenset({"static"}))


def test_every_rule_has_a_description():
    assert all(rule.description.endswith(".") for rule in list_rules())


def test_the_committed_sample_has_the_defaults(tmp_path):
    made = tmp_path / "policy.yaml.sample"
    generator = Path(sys.executable).with_name("oslopolicy-sample-generator")
    subprocess.run([generator, "--namespace", "pinner", "--output-file", made], check=True, cwd=tmp_path)
    assert made.read_text() == (REPOSITORY / "etc/pinner/policy.yaml.sample").read_text()


def test_oslo_policys_own_commands_find_the_rules():
    checker = Path(sys.executable).with_name("oslopolicy-list-redundant")
    assert subprocess.run([checker, "--namespace", "pinner"], check=False).returncode == 0


class Files:
    """A configuration whose policy file can be written."""

    def __init__(self, folder):
        self.policy = folder / "policy.yaml"
        self.config = folder / "pinner.conf"
        self.config.write_text(f"[oslo_policy]\npolicy_file = {self.policy}\n")
        self.seconds = 0.0

    def authorizer(self):
        return Authorizer(Enforcer(conf.load([self.config])), lambda: self.seconds)


@pytest.fixture
def files(tmp_path):
    return Files(tmp_path)


READER = Identity("ann", "192.0.2.1", "reader")


def allows(authorizer, rule, identity=READER, host=""):
    try:
        authorizer.require(rule, identity, host)
    except access.Forbidden:
        return False
    return True


def test_an_operator_overrides_a_rule(files):
    files.policy.write_text('"pinner:audit:list": "rule:admin"\n"pinner:plans:create": "rule:reader"\n')
    authorizer = files.authorizer()
    assert not allows(authorizer, "pinner:audit:list")
    assert allows(authorizer, "pinner:audit:verify")
    assert allows(authorizer, "pinner:plans:create")


def test_a_probe_that_keeps_its_winner_needs_the_rule_of_apply_too(pinner, tokens, files):
    files.policy.write_text('"pinner:plans:apply": "rule:admin"\n')
    control = make_control(tokens, config=conf.load([files.config]))
    client = client_of(create_app(pinner, control=control, max_body_bytes=4096), TcpPeer("192.0.2.1"))
    operator, admin = bearer(tokens.add("operator")), bearer(tokens.add("admin"))
    plan = client.post("/v1/hosts/h1/plans", json={"strategy": "shared-pool"}, headers=admin).json["id"]
    path, keep = f"/v1/plans/{plan}/probe", {"keep": True}
    refused = client.post(path, json=keep, headers=operator)
    assert (refused.status_code, pinner.probes) == (403, {})
    assert "pinner:plans:apply" in refused.json["error"]["message"]
    assert client.post(path, json={}, headers=operator).status_code == 202
    assert client.post(path, json=keep, headers=admin).status_code == 202


def test_a_rule_may_name_the_actor_and_the_host(files):
    files.policy.write_text('"pinner:plans:create": "actor:ann and host:%(host)s"\n')
    authorizer = files.authorizer()
    of_h1 = Identity("ann", "192.0.2.1", "reader", "h1")
    assert allows(authorizer, "pinner:plans:create", of_h1, "h1")
    assert not allows(authorizer, "pinner:plans:create", of_h1, "h2")
    assert not allows(authorizer, "pinner:plans:create", READER, "h1")


def test_a_changed_file_takes_effect_without_a_restart(files):
    files.policy.write_text("{}\n")
    authorizer = files.authorizer()
    assert allows(authorizer, "pinner:audit:list")
    files.policy.write_text('"pinner:audit:list": "!"\n')
    files.seconds += RELOAD_SECONDS
    assert not allows(authorizer, "pinner:audit:list")


def test_no_decision_uses_a_part_of_the_rules(files):
    """oslo.policy empties its rules before it reads a changed file."""
    files.policy.write_text("{}\n")
    authorizer = files.authorizer()
    stop = time.monotonic() + 2

    def change():
        for number in itertools.count():
            if time.monotonic() > stop:
                return
            files.policy.write_text(f"{{}} # {number}\n")
            os.utime(files.policy, (number, 2_000_000_000 + number))
            files.seconds += RELOAD_SECONDS

    def ask(thread):
        hosts = itertools.count()
        while time.monotonic() < stop:
            if not allows(authorizer, "pinner:audit:list", host=f"{thread} {next(hosts)}"):
                return False
        return True

    changing = threading.Thread(target=change)
    changing.start()
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(ask, range(4)))
    changing.join()
    assert all(answers)


def test_a_file_that_becomes_wrong_changes_nothing(files, caplog):
    files.policy.write_text('"pinner:audit:list": "!"\n')
    authorizer = files.authorizer()
    files.policy.write_text("{ nonsense")
    for _ in range(3):
        files.seconds += RELOAD_SECONDS
        assert not allows(authorizer, "pinner:audit:list")
        assert allows(authorizer, "pinner:plans:list")
    assert "policy_file is wrong" in caplog.text


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (None, "a file that exists"),
        ("{ nonsense", "a file of rules in YAML"),
        ('"pinner:plan:create": "!"\n', "pinner:plan:create"),
        ('"pinner:plans:create": "rule:nobody"\n', "defined rules"),
        ('"reader": "rule:operator"\n"operator": "rule:reader"\n', "without a cycle"),
    ],
)
def test_a_wrong_file_is_refused_at_the_start(files, text, named):
    if text is not None:
        files.policy.write_text(text)
    with pytest.raises(Invalid) as refused:
        files.authorizer()
    assert refused.value.details["field"] == "[oslo_policy] policy_file"
    assert refused.value.details["value"].endswith("policy.yaml")
    assert named in str(refused.value)


def test_the_document_has_the_table_of_roles_as_the_rules_decide():
    """`make roles` writes it."""
    document = DOCUMENT.read_text("utf-8")
    assert document == expected(document)


def test_the_table_of_roles_has_what_each_role_may():
    table = DOCUMENT.read_text("utf-8")
    for (method, path), (roles, _) in OPERATIONS.items():
        if GUEST not in path and "none" not in path:
            marks = " | ".join("yes" if role in roles.split() else "" for role in ROLES)
            row = rf"\| {method} {re.escape(path.replace('h1', '{host}'))} \| [^|]+ \| {re.escape(marks)} \|"
            assert re.search(row, table), (method, path)
