"""Errors of the model are answered with their status and details; unexpected errors show no details."""

import logging
from dataclasses import replace

import pytest
from support.fakes.in_memory_service import InMemoryService

from pinner.api import errors
from pinner.model.errors import (
    ApplyFailed,
    Blocked,
    Gone,
    HostBusy,
    HostUnreachable,
    Invalid,
    NoFit,
    NotFound,
    NotPermitted,
    NovaConflict,
    PinnerError,
    RunConflict,
    StalePlan,
    StoreUnavailable,
)

CASES = [
    (Invalid("emulator", "9", "a CPU"), 400),
    (NotFound("run", "r"), 404),
    (NoFit(8, 4, "node 0 is full"), 409),
    (StalePlan("p", ("CPU 3 is offline",)), 409),
    (Blocked("p", "reboot first"), 409),
    (HostBusy("h1", "r"), 409),
    (NovaConflict("housekeeping 0-4", "Nova's cpu_dedicated_set 4-7", "4"), 409),
    (RunConflict("r", "running", "an ended run"), 409),
    (Gone("guest web"), 409),
    (ApplyFailed("guest web vcpu 0", "refused"), 502),
    (NotPermitted("libvirt", "join the group"), 502),
    (HostUnreachable("h1", "libvirtd does not run"), 503),
    (StoreUnavailable("sqlite", "disk full"), 503),
]


@pytest.mark.parametrize(("error", "status"), CASES, ids=[error.code for error, _ in CASES])
def test_each_error_has_its_status_and_details(client, pinner, monkeypatch, error, status):
    def fail(*_arguments):
        raise error

    monkeypatch.setattr(pinner, "hosts", fail)
    answer = client.get("/v1/hosts")
    assert answer.status_code == status
    body = answer.json["error"]
    assert (body["code"], body["message"], body["details"]) == (error.code, error.message, dict(error.details))


def test_every_kind_of_error_has_a_status():
    # No request sets a host up or removes it.
    kinds = [kind for kind in PinnerError.__subclasses__() if not kind.__module__.startswith("pinner.hostsetup")]
    assert {kind.code for kind in kinds} <= set(errors.STATUS)


def test_the_cause_of_an_unexpected_error_is_only_in_the_log(client, pinner, monkeypatch, caplog):
    def fail():
        raise RuntimeError("password=hunter2")

    monkeypatch.setattr(pinner, "hosts", fail)
    with caplog.at_level(logging.ERROR):
        answer = client.get("/v1/hosts")
    assert answer.status_code == 500
    assert answer.json["error"]["code"] == "internal"
    assert "hunter2" not in answer.text
    assert "hunter2" in caplog.text
    assert answer.json["error"]["request_id"] in caplog.text


@pytest.mark.parametrize(
    ("prepare", "code"),
    [
        (lambda pinner, plan: pinner.stale.add(plan), "stale_plan"),
        (lambda pinner, plan: pinner.stored.update({plan: _blocked(pinner, plan)}), "plan_blocked"),
        (lambda pinner, plan: pinner.stored.update({plan: _worse(pinner, plan)}), "plan_worse"),
    ],
)
def test_a_refused_apply_starts_no_run(client, pinner: InMemoryService, prepare, code):
    plan = client.post("/v1/hosts/h1/plans", json={}).json["id"]
    prepare(pinner, plan)
    answer = client.post(f"/v1/plans/{plan}/apply", json={})
    assert (answer.status_code, answer.json["error"]["code"]) == (409, code)
    assert pinner.run_list == {}


def test_a_running_run_is_not_rolled_back(client, pinner: InMemoryService):
    pinner.instant = False
    plan = client.post("/v1/hosts/h1/plans", json={}).json["id"]
    run = client.post(f"/v1/plans/{plan}/apply", json={}).json["id"]
    answer = client.post(f"/v1/runs/{run}/rollback", json={})
    assert answer.status_code == 409
    assert answer.json["error"]["details"] == {
        "run": run,
        "state": "running",
        "expected": "only an applied run can be rolled back",
    }


def test_a_worse_plan_is_applied_where_the_body_allows_it(client, pinner: InMemoryService):
    plan = client.post("/v1/hosts/h1/plans", json={}).json["id"]
    pinner.stored[plan] = _worse(pinner, plan)
    assert client.post(f"/v1/plans/{plan}/apply", json={"allow_worse": False}).status_code == 409
    assert client.post(f"/v1/plans/{plan}/apply", json={"allow_worse": "perhaps"}).status_code == 400
    assert client.post(f"/v1/plans/{plan}/apply", json={"allow_worse": True}).status_code == 202
    assert len(pinner.run_list) == 1


def _worse(pinner, plan):
    return replace(pinner.stored[plan], worse="tier 6 0.00 -> 1.00")


def _blocked(pinner, plan):
    return replace(pinner.stored[plan], blocked="reboot first")


@pytest.mark.parametrize("path", ["/v1//hosts", "//v1/hosts", "/v1/hosts//h1", "/v1/hosts/"])
def test_a_doubled_slash_is_no_redirection(client, path):
    answer = client.get(path, headers={"Host": "evil.example"})
    assert (answer.status_code, answer.json["error"]["code"]) == (404, "not_found")
