"""schemathesis tests the served API against its own OpenAPI document, with every phase and every check."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.examples import examples
from support.server.access import AuditList, InMemoryTokens, make_control
from support.server.real_service import real_service

from pinner.agent.trail.trail import CallLimit
from pinner.api.access import credentials
from pinner.api.app import create_app
from pinner.api.server import serve
from pinner.model.page import PageRequest
from pinner.model.plan.request import Request
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions
from pinner.server.sockets import listen_tcp

TESTS = Path(__file__).parents[3]
ANN = Caller("ann", "here", "req-1")
LARGEST_BODY = 4 * 1024 * 1024
"""Bytes: the longest lists that the schema allows must not be refused because of the size of their body."""
SECONDS = 1500
"""A generous limit: a run takes about 30 seconds on two cores."""


PLANNING = ("admin", "operator")
"""The roles that may plan and apply."""
NOBODY = "nobody"
"""No role: the requests have no token."""
ROLES = [*PLANNING, "reader", "hook", NOBODY]


MORE = pytest.mark.slow("schemathesis: other roles and PostgreSQL")


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=MORE)])
@pytest.mark.parametrize("role", ["admin", *(pytest.param(role, marks=MORE) for role in ROLES[1:])])
def test_schemathesis_finds_nothing(tmp_path, role, kind, monkeypatch, idempotency_keys, databases):
    # schemathesis sends wrong credentials to every operation, and expects 401 or 403 each time.
    monkeypatch.setattr(credentials, "FREE_FAILURES", 10_000)
    with real_service(tmp_path, databases.own(kind, tmp_path)) as (pinner, agent):
        # So many requests for runs that cannot begin would make the agent busy; test_idle_calls.py tests its limit.
        monkeypatch.setattr(agent, "_idle", CallLimit(most=1_000_000))
        _write_known_names(tmp_path, pinner)
        tokens, trail = InMemoryTokens(), AuditList()
        app = create_app(
            pinner, control=make_control(tokens, trail), max_body_bytes=LARGEST_BODY, idempotency_keys=idempotency_keys
        )
        app.test_client().get("/openapi.json")  # a busy machine makes it for longer than schemathesis waits
        server = serve(app, [listen_tcp("127.0.0.1", 0)])
        try:
            token = [] if role == NOBODY else ["-H", f"Authorization: Bearer {tokens.add(role)}"]
            done = subprocess.run(_command(server.url, *token), **_environment(tmp_path))
        finally:
            server.stop()
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr
        assert "48 selected / 48 total" in done.stdout
        assert len(trail) > 1, "the requests without credentials were refused"
        if role not in PLANNING:
            # An event that a guest leaves gives it its earlier CPUs back, by a plan of its own.
            releases = {run.plan for run in pinner.runs(None, PageRequest(500)).items if run.kind == "release"}
            assert role == "hook" or not releases
            assert len({plan.id for plan in pinner.plans(None, PageRequest(500)).items} - releases) == 1
            return
        assert len(pinner.plans(None, PageRequest(500)).items) >= 3, "the requests reached the planner"
        states = {(run.kind, run.state) for run in pinner.runs(None, PageRequest(500)).items}
        assert ("apply", "rolled_back") in states, "the requests reached the agent"


def _write_known_names(folder, pinner):
    """Let schemathesis use names of existing objects in most requests."""
    plan = pinner.plan("compute1", Request(), None, 0.0, ANN)
    run = pinner.apply(plan.id, ApplyOptions(), ANN)
    known = {
        "path.host": ["compute1"],
        "path.guest": [guest.uuid for guest in pinner.observe("compute1", 0.0).guests],
        "path.plan": [plan.id],
        "path.run": [run.id],
        "path.snapshot": [plan.basis.snapshot],
        "body.host": ["compute1"],
        "body.guest": [guest.uuid for guest in pinner.observe("compute1", 0.0).guests],
        "body.strategy": [strategy.name for strategy in pinner.strategies()],
        "body.snapshot": [plan.basis.snapshot],
    }
    lines = [
        f"[dictionaries.{name.replace('.', '_')}]\nvalues = {json.dumps(values)}" for name, values in known.items()
    ]
    uses = [f'"{name}" = {{ dictionary = "{name.replace(".", "_")}", probability = 0.8 }}' for name in known]
    (folder / "schemathesis.toml").write_text("\n".join([*lines, "[parameters]", *uses]) + "\n")


def _command(url, *token):
    # --generation-deterministic: every run has the same cases, so that a failure comes from a change of the code.
    return [
        str(Path(sys.executable).with_name("schemathesis")),
        "run",
        f"{url}/openapi.json",
        *token,
        "--checks=all",
        # Few of the strings that it generates for header fields can be sent; a busy machine generates slowly.
        "--suppress-health-check=filter_too_much,too_slow",
        *(["--max-examples=40"] if examples(100) == 100 else ["--max-examples=4", "--phases=examples,fuzzing"]),
        "--generation-deterministic",
        "--continue-on-failure",
        "--no-color",
    ]


def _environment(folder):
    env = {**os.environ, "PYTHONPATH": str(TESTS), "SCHEMATHESIS_HOOKS": "support.system.schemathesis_hooks"}
    return {"cwd": folder, "env": env, "capture_output": True, "text": True, "timeout": SECONDS, "check": False}
