"""A client that openapi-python-client generates from the document drives plan, apply, rollback, policy and audit."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from support.server.access import InMemoryTokens
from support.server.real_service import answering, real_service

HOST = "compute1"


@pytest.fixture
def generated(tmp_path, monkeypatch):
    """The service over REST, and a function that calls an operation of the generated client."""
    tokens = InMemoryTokens()
    with real_service(tmp_path) as (pinner, _), answering(pinner, tokens) as url:
        name = f"generated_{tmp_path.name.replace('-', '_')}"
        config = tmp_path / "config.json"
        config.write_text(json.dumps({"post_hooks": [], "literal_enums": True}))
        # The generator waits for a URL for five seconds only.
        (tmp_path / "openapi.json").write_bytes(httpx.get(f"{url}/openapi.json", timeout=60).content)
        command = [Path(sys.executable).with_name("openapi-python-client"), "generate", "--path", "openapi.json"]
        options = ["--output-path", tmp_path / name, "--meta", "none", "--config", config, "--fail-on-warning"]
        subprocess.run([*command, *options], cwd=tmp_path, check=True, capture_output=True)
        monkeypatch.syspath_prepend(tmp_path)
        made = importlib.import_module(f"{name}.client").AuthenticatedClient(url, tokens.add("admin"))
        with made as client:

            def call(tag, operation, *arguments, body=None, **options):
                module = importlib.import_module(f"{name}.api.{tag}.{operation}")
                if body is not None:
                    kind, values = body
                    options["body"] = getattr(importlib.import_module(f"{name}.models"), kind).from_dict(values)
                return getattr(module, "sync", module.sync_detailed)(*arguments, client=client, **options)

            yield call


def ended(call, run):
    while (detail := call("runs", "show_run", run)).run.state == "running":
        pass
    return detail


def test_a_generated_client_drives_pinner(generated):
    call = generated
    assert call("hosts", "list_hosts").items == [HOST]
    plan = call("plans", "create_plan", HOST, body=("NewPlan", {"sample_seconds": 0, "busy_threshold": 1}))
    assert plan.changes
    assert [each.id for each in call("plans", "list_plans", host=HOST).items] == [plan.id]
    run = call("plans", "apply_plan", plan.id, body=("NewApply", {}), idempotency_key="one")
    detail = ended(call, run.id)
    assert detail.run.state == "applied"
    assert {entry.state for entry in detail.entries} == {"done"}
    undo = call("runs", "roll_back_run", run.id, body=("NewRollback", {}))
    assert ended(call, undo.id).run.state == "rolled_back"
    assert [each.id for each in call("runs", "list_runs", state="rolled_back", sort_dir="asc").items] == [
        run.id,
        undo.id,
    ]
    policy = call("policies", "set_policy", HOST, body=("NewPolicy", {"mode": "propose"}), if_none_match="*")
    assert policy.mode == "propose"
    refused = call("policies", "set_policy", HOST, body=("NewPolicy", {"mode": "enforce"}), if_none_match="*")
    assert refused.error.code == "precondition_failed"
    call("policies", "delete_policy", HOST, if_match="*")
    assert call("policies", "show_policy", HOST).error.code == "not_found"
    actions = [record.action for record in call("audit", "list_audit_records", limit=100, sort_dir="asc").items]
    assert actions[0] == "snapshot.take"
    assert actions[-2:] == ["policy.set", "policy.delete"]
    assert call("audit", "verify_audit").ok
