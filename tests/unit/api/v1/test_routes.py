"""Each route answers the values that the service returns."""

import re

import pytest
from support.fakes.in_memory_service import STRATEGIES
from support.values import EVIL, NOON, sample_snapshot

from pinner import codec
from pinner.model.guest.guest import Guest, GuestExclusion
from pinner.model.machine.process import Process
from pinner.model.outcome.check import CheckReport, Evidence
from pinner.model.outcome.measures import Measures
from pinner.model.outcome.outcome import MAX_PLANS, TOURNAMENT_WINDOWS, Probe
from pinner.model.page import Page
from pinner.model.plan.plan import Plan, PlanSummary
from pinner.model.plan.request import Request
from pinner.model.policy import DriftReport, Policy, Setback, ShownPolicy
from pinner.model.questions import Capacity, Explanation, GuestShape, WhatIf
from pinner.model.run.journal import Entry, Run
from pinner.model.snapshot import Snapshot
from pinner.service.protocol import StrategyInfo


def read(kind, answer, status=200):
    assert answer.status_code == status, answer.text
    return codec.load(kind, answer.data)


def test_versions_and_health(client):
    (version,) = client.get("/").json["versions"]
    assert version.items() >= {"id": "v1", "status": "CURRENT", "path": "/v1"}.items()
    assert client.get("/healthcheck").json == {"status": "ok"}


def test_hosts_and_strategies(client):
    assert read(Page[str], client.get("/v1/hosts")) == Page(("h1",), "")
    names = [strategy.name for strategy in read(Page[StrategyInfo], client.get("/v1/strategies")).items]
    assert names == ["isolated", "numa-local", "shared-pool"]


def test_pages_of_strategies(client):
    first = read(Page[StrategyInfo], client.get("/v1/strategies?limit=2"))
    rest = read(Page[StrategyInfo], client.get(f"/v1/strategies?limit=2&marker={first.next}"))
    assert {*first.items, *rest.items} == set(STRATEGIES)
    assert rest.next == ""


def test_the_state_of_a_host(client, pinner):
    before = pinner.state()
    assert read(Snapshot, client.get("/v1/hosts/h1")) == sample_snapshot()
    assert read(Snapshot, client.get("/v1/hosts/h1?sample_seconds=0.25")).sample_seconds == 0.25
    assert codec.read(Snapshot, codec.plain(sample_snapshot())).topology.nodes[0].distances == {0: 10}
    assert read(Page[Guest], client.get("/v1/hosts/h1/guests")).items == sample_snapshot().guests
    assert client.get("/v1/hosts/h1/topology").json == codec.plain(sample_snapshot().topology)
    assert pinner.state() == before, "reading changes nothing"


@pytest.mark.parametrize(
    ("query", "pids"), [("", [90, 1000]), ("?busy=true", [90]), ("?busy=true&busy_threshold=0.1", [90, 1000])]
)
def test_processes(client, query, pids):
    found = read(Page[Process], client.get(f"/v1/hosts/h1/processes{query}"))
    assert [process.pid for process in found.items] == pids


def test_pages_of_processes_are_in_numeric_order(client):
    first = read(Page[Process], client.get("/v1/hosts/h1/processes?limit=1"))
    second = read(Page[Process], client.get(f"/v1/hosts/h1/processes?limit=1&marker={first.next}"))
    assert [process.pid for process in (*first.items, *second.items)] == [90, 1000]
    assert second.next == ""


def test_a_snapshot_is_stored_and_used_for_a_plan(client, pinner):
    taken = client.post("/v1/hosts/h1/snapshot", json={"sample_seconds": 0})
    assert taken.status_code == 201
    assert {name: taken.json[name] for name in ("host", "cpus", "nodes", "guests", "processes")} == {
        "host": "h1",
        "cpus": 4,
        "nodes": 1,
        "guests": 1,
        "processes": 2,
    }
    assert read(Snapshot, client.get(taken.headers["Location"])) == pinner.snapshots[taken.json["id"]]
    plan = read(Plan, client.post("/v1/hosts/h1/plans", json={"snapshot": taken.json["id"]}), 201)
    assert plan.basis.snapshot == taken.json["id"]


def test_a_plan_accepts_every_field_of_a_request(client):
    fields = {
        "strategy": "isolated",
        "guests": [EVIL],
        "processes": ["90"],
        "housekeeping": "0",
        "emulator": "1-2",
        "busy_threshold": 7,
        "smt": "isolate",
        "isolation": "live",
        "released_guests": ["g3"],
        "excluded_guests": ["g1"],
        "excluded_processes": ["sshd.service"],
        "nova_emulators": True,
        "minimum_cores": 1,
        "rebalance": True,
        "with_processes": True,
        "weights": {"extra_l3": 2.0, "shared_cores": 0.0},
        "moves": 3,
        "solver_budget": 77,
        "irq_cpus": {"ens1": "0"},
        "with": ["irqs"],
    }
    made = client.post("/v1/hosts/h1/plans", json=fields)
    plan = read(Plan, made, 201)
    assert codec.plain(plan.request) == fields
    assert made.headers["Location"] == f"/v1/plans/{plan.id}"
    assert read(Plan, client.get(made.headers["Location"])) == plan
    assert read(Page[PlanSummary], client.get("/v1/plans?host=h1")).items[0].id == plan.id
    assert read(Page[PlanSummary], client.get("/v1/plans?host=other")).items == ()


def test_a_plan_request_says_with_what(client):
    refused = client.post("/v1/hosts/h1/plans", json={"with": ["fans"]})
    assert (refused.status_code, refused.json["error"]["details"]["field"]) == (400, "with.0")
    assert client.post("/v1/hosts/h1/plans", json={"remedies": ["irqs"]}).status_code == 400
    assert "with" not in client.post("/v1/hosts/h1/plans", json={"with": []}).json["request"]
    made = client.post("/v1/hosts/h1/plans", json={"with": ["irqs", "irqs"]})
    assert made.json["request"]["with"] == ["irqs"]
    policy = client.put("/v1/hosts/h1/policy", json={"request": {"with": ["irqs"]}})
    assert policy.json["request"]["with"] == ["irqs"]
    assert client.get("/v1/hosts/h1/policy").json == policy.json


def test_a_plan_request_says_which_findings_it_cures(client):
    refused = client.post("/v1/hosts/h1/plans", json={"fix": ["clocksource-slow"]})
    assert (refused.status_code, refused.json["error"]["details"]["field"]) == (400, "fix")
    assert "set the lines by hand that a check shows" in refused.json["error"]["message"]
    assert "fix" not in client.post("/v1/hosts/h1/plans", json={"fix": []}).json["request"]
    made = client.post("/v1/hosts/h1/plans", json={"fix": ["softnet-drops"]})
    assert made.json["request"]["fix"] == ["softnet-drops"]
    policy = client.put("/v1/hosts/h1/policy", json={"request": {"fix": ["softnet-drops"]}})
    assert policy.json["request"]["fix"] == ["softnet-drops"]


@pytest.mark.parametrize("form", ["text", "shell"])
def test_a_plan_as_text_has_no_terminal_escape(client, form):
    plan = client.post("/v1/hosts/h1/plans", json={}).json["id"]
    answer = client.get(f"/v1/plans/{plan}?format={form}")
    assert answer.content_type == "text/plain; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.text
    assert all(char.isprintable() or char == "\n" for char in answer.text)


def test_apply_and_roll_back(client):
    plan = client.post("/v1/hosts/h1/plans", json={}).json["id"]
    applied = client.post(
        f"/v1/plans/{plan}/apply", json={"persist": True, "migrate_memory": True, "all_or_nothing": True}
    )
    run = read(Run, applied, 202)
    assert (run.plan, run.persist, run.migrate_memory, run.all_or_nothing) == (plan, True, True, True)
    assert (run.actor, run.origin) == ("nobody", "process 1")
    detail = client.get(applied.headers["Location"]).json
    assert codec.read(Run, detail["run"]).state == "applied"
    assert [entry.state for entry in codec.read(tuple[Entry, ...], detail["entries"])] == ["done"] * 3
    undo = read(Run, client.post(f"/v1/runs/{run.id}/rollback", json={}), 202)
    assert undo.undoes == run.id
    assert [each.id for each in read(Page[Run], client.get("/v1/runs")).items] == [undo.id, run.id]


def test_all_runs_of_a_host_are_rolled_back(client):
    undo = client.post("/v1/hosts/h1/rollback", json={})
    run = read(Run, undo, 202)
    assert (run.kind, run.undoes, run.host, undo.headers["Location"]) == ("rollback", "", "h1", f"/v1/runs/{run.id}")
    assert client.post("/v1/hosts/h9/rollback", json={}).status_code == 404
    assert client.put("/v1/hosts/h1/policy", json={"mode": "enforce"}).status_code == 200
    refused = client.post("/v1/hosts/h1/rollback", json={})
    assert (refused.status_code, refused.json["error"]["code"]) == (409, "policy_conflict")


def test_the_audit_trail_names_the_request(client):
    made = client.post("/v1/hosts/h1/plans", json={})
    (record,) = client.get("/v1/audit?host=h1&actor=nobody&since=2026-11-21T11:00:00%2B00:00").json["items"]
    assert record["request_id"] == made.headers["X-Openstack-Request-Id"]
    assert client.get("/v1/audit?since=2026-11-21T13:30:00%2B01:00").json["items"] == []
    assert client.get("/v1/audit/verify").json["ok"] is True


def test_every_answer_has_a_request_id_of_its_own(client):
    ids = [client.get(path).headers["X-Openstack-Request-Id"] for path in ("/", "/", "/nowhere", "/v1/hosts/x")]
    assert all(re.fullmatch(r"req-[0-9a-f-]{36}", each) for each in ids)
    assert len({*ids}) == 4


def test_the_room_of_a_host(client):
    found = client.get("/v1/hosts/h1/capacity").json
    assert (found["host"], found["mode"], found["strategy"]) == ("h1", None, "shared-pool")
    shared = next(each for each in found["strategies"] if each["strategy"] == "shared-pool")
    assert shared["guests"] == {"1": 1, "2": 0, "4": 0}
    assert shared["nodes"][0] == {
        "node": 0,
        "cpus": "2-3",
        "free_vcpus": 1,
        "memory_kib": 1024,
        "guests": {"1": 1, "2": 0, "4": 0},
    }
    asked = read(Capacity, client.get("/v1/hosts/h1/capacity?vcpus=3"))
    assert {tuple(each.guests) for each in asked.strategies} == {(3,)}
    for wrong in ("0", "-1", "1.5", "8193", "four", "", "[2]"):
        refused = client.get("/v1/hosts/h1/capacity", query_string={"vcpus": wrong})
        assert (refused.status_code, refused.json["error"]["details"]["field"]) == (400, "vcpus")
    assert client.get("/v1/hosts/elsewhere/capacity").status_code == 404


def test_the_measures_of_a_host(client):
    found = read(Measures, client.get("/v1/hosts/h1/measures?from=2026-03-01T12:00:00Z&to=2026-03-01T13:00Z&step=60"))
    assert found.step == 60
    assert found.histories[0].subject == "host"
    assert found.histories[1].values["delay_vcpu"] == (None, 10.0, 20.0, 80.0)
    assert {series.unit for series in found.guest_series} == {"ms/s", "%", "packets/s", "bits/s", "ms"}
    assert {series.name for series in found.guest_series if series.better == "higher"} >= {"packets_in", "bits_out"}
    for field, wrong in (("from", "yesterday"), ("to", "2026-03-01"), ("step", "7"), ("step", "")):
        refused = client.get("/v1/hosts/h1/measures", query_string={field: wrong})
        assert (refused.status_code, refused.json["error"]["details"]["field"]) == (400, field)
    assert client.get("/v1/hosts/h1/measures?guest=nobody").status_code == 404


def test_some_series_of_the_measures(client):
    found = read(Measures, client.get("/v1/hosts/h1/measures?series=drops,delay_vcpu,drops"))
    assert [series.name for series in found.guest_series] == ["delay_vcpu", "drops"]
    assert found.host_series == ()
    assert {tuple(sorted(each.values)) for each in found.histories} == {("delay_vcpu", "drops")}
    for wrong in ("drop", "drops,", "", " drops", "drops,nothing"):
        refused = client.get("/v1/hosts/h1/measures", query_string={"series": wrong})
        assert (refused.status_code, refused.json["error"]["details"]["field"]) == (400, "series")
        assert "delay_vcpu" in refused.json["error"]["message"]


def test_the_room_for_guests_of_one_shape(client):
    found = read(Capacity, client.get("/v1/hosts/h1/capacity?vcpus=1&memory_kib=0"))
    assert found.shape == GuestShape(1)
    assert [each.guests for each in found.fitting if each.strategy == "shared-pool"] == [1]
    large = read(Capacity, client.get("/v1/hosts/h1/capacity?memory_kib=16"))
    assert large.shape == GuestShape(1, 16)
    assert [each.why for each in large.fitting if each.strategy == "shared-pool"] == [
        "the host has 0 KiB of memory left, and its guests would need 61456 KiB"
    ]
    assert client.get("/v1/hosts/h1/capacity?page_kib=0").status_code == 200
    for field in ("memory_kib", "page_kib"):
        for wrong in ("-1", "1.5", "16G", str(1 << 41)):
            refused = client.get("/v1/hosts/h1/capacity", query_string={"vcpus": 1, field: wrong})
            assert (refused.status_code, refused.json["error"]["details"]["field"]) == (400, field)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 200),
        ({"add": [{"shape": {"vcpus": 1}}], "then": {"strategy": "numa-local"}, "without_cpus": "3"}, 200),
        ({"without_nodes": [0]}, 409),
        ({"without_cpus": "0-3"}, 409),
        ({"remove": ["nobody"]}, 404),
        ({"without_nodes": [7]}, 404),
        ({"without_cpus": "64"}, 400),
        ({"request": {"strategy": "fast"}}, 404),
        ({"add": [{"shape": {"vcpus": 0}}]}, 400),
        ({"add": [{"shape": {"vcpus": 1, "page_kib": 2048}}]}, 400),
        ({"add": [{"shape": {"vcpus": 1, "page_kib": 2048, "memory_kib": 0}}]}, 400),
        ({"add": [{"shape": {"vcpus": 1, "page_kib": 0}}]}, 200),
        ({"add": [{"shape": {"vcpus": 8192}, "count": 3}]}, 400),
        ({"add": [{"vcpus": 1}]}, 400),
        ({"weights": {"overcommit": -1}}, 400),
    ],
)
def test_what_if(client, pinner, body, status):
    before = pinner.state()
    answer = client.post("/v1/hosts/h1/what-if", json=body)
    assert answer.status_code == status, answer.text
    assert pinner.state() == before
    if status == 200:
        found = read(WhatIf, answer)
        assert found.before.guests == 1
        assert found.after.guests + len(found.after.unplaced) == 1 + len(body.get("add", ()))


def test_the_shape_that_is_refused_is_named(client):
    """The pages of no memory."""
    answer = client.post("/v1/hosts/h1/what-if", json={"add": [{"shape": {"vcpus": 1, "page_kib": 2048}}]})
    assert answer.json["error"]["details"]["field"] == "page_kib"
    assert answer.json["error"]["message"].startswith("page_kib: 2048 is not valid")
    assert "memory_kib" in answer.json["error"]["message"]


def test_an_explanation_of_a_stored_plan(client):
    plan = client.post("/v1/hosts/h1/plans", json={}).json["id"]
    guest = "6a5b7a0e-0000-4000-8000-000000000001"
    found = read(Explanation, client.get(f"/v1/plans/{plan}/explanation?guest={guest}"))
    assert found.guest.owner == guest
    assert [each.kind for each in found.alternatives] == ["now"]
    assert client.get(f"/v1/plans/{plan}/explanation?guest=nobody").status_code == 404
    assert client.get(f"/v1/plans/{plan}/explanation").status_code == 400


def test_the_findings_of_a_host(client):
    found = read(CheckReport, client.get("/v1/hosts/h1/findings?sample_seconds=2"))
    (slow,) = (each for each in found.findings if each.code == "vcpu-run-delay")
    assert (found.state, slow.severity, slow.subject.kind) == ("critical", "critical", "guest")
    assert slow.evidence[0] == Evidence("worst run delay", 50.0, "%")
    assert found.checks > 20
    single = read(CheckReport, client.get("/v1/hosts/h1/findings?sample_seconds=0"))
    assert "vcpu-run-delay" not in {each.code for each in single.findings}
    for wrong in ("-1", "301", "long", ""):
        refused = client.get("/v1/hosts/h1/findings", query_string={"sample_seconds": wrong})
        assert (refused.status_code, refused.json["error"]["details"]["field"]) == (400, "sample_seconds")
    assert client.get("/v1/hosts/elsewhere/findings").status_code == 404


def test_a_policy_and_its_drift(client):
    assert client.get("/v1/hosts/h1/policy").status_code == 404
    assert read(DriftReport, client.get("/v1/hosts/h1/drift")).mode is None
    body = {"mode": "enforce", "request": {"strategy": "numa-local", "excluded_guests": ["g1"]}}
    policy = read(Policy, client.put("/v1/hosts/h1/policy", json=body | {"undo_if_worse": True}))
    assert policy == Policy(Request("numa-local", excluded_guests=("g1",)), "enforce", undo_if_worse=True)
    refused = client.put("/v1/hosts/h1/policy", json=body | {"probe_first": True})
    assert (refused.status_code, refused.json["error"]["details"]["field"]) == (400, "probe_first")
    policy = read(Policy, client.put("/v1/hosts/h1/policy", json=body))
    assert policy == Policy(Request("numa-local", excluded_guests=("g1",)), "enforce")
    assert read(Policy, client.get("/v1/hosts/h1/policy")) == policy
    assert client.get("/v1/hosts/h1/policy").json["setback"] is None
    (drift,) = read(DriftReport, client.get("/v1/hosts/h1/drift")).drifts
    assert (drift.cause, str(drift.expected), drift.times) == ("systemd", "0", 4)
    assert client.put("/v1/hosts/elsewhere/policy", json=body).status_code == 404


def test_a_policy_is_shown_with_its_setback(client, pinner):
    etag = client.put("/v1/hosts/h1/policy", json={"mode": "propose", "undo_if_worse": True}).headers["ETag"]
    pinner.setbacks["h1"] = Setback("run-7", NOON, "worse than before the run: drops")
    answer = client.get("/v1/hosts/h1/policy")
    assert read(ShownPolicy, answer) == ShownPolicy(Request(), "propose", True, pinner.setbacks["h1"])
    assert answer.headers["ETag"] == etag, "a setback is no part of the revision"
    again = client.put("/v1/hosts/h1/policy", json=answer.json, headers={"If-Match": etag})
    assert (again.status_code, again.json) == (200, answer.json | {"setback": None})
    assert client.put("/v1/hosts/h1/policy", json={"setback": "none"}).status_code == 400


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"mode": "obey"}, "mode"),
        ({"strategy": "isolated"}, "strategy"),
        ({"request": {"snapshot": "s"}}, "request.snapshot"),
        ({"request": {"rebalance": True}}, "request.rebalance"),
        ({"request": {"busy_threshold": "2"}}, "request.busy_threshold"),
        ({"request": {"busy_threshold": 1e20}}, "request.busy_threshold"),
        ({"request": {"housekeeping": "3-1"}}, "housekeeping"),
        ([], "body"),
    ],
)
def test_an_invalid_policy_is_refused(client, pinner, body, field):
    answer = client.put("/v1/hosts/h1/policy", json=body)
    assert (answer.status_code, answer.json["error"]["code"]) == (400, "invalid")
    assert answer.json["error"]["details"]["field"] == field
    assert pinner.policies == {}


def test_a_policy_from_another_site_is_refused(client, pinner):
    answer = client.put("/v1/hosts/h1/policy", json={}, headers={"Origin": "http://evil.example"})
    assert (answer.status_code, pinner.policies) == (403, {})


def test_a_guest_is_excluded_and_included_again(client, pinner):
    (guest,) = client.get("/v1/hosts/h1/guests").json["items"]
    path = f"/v1/hosts/h1/guests/{guest['uuid']}/excluded"
    for excluded in (True, False):
        assert read(GuestExclusion, client.put(path, json={"excluded": excluded})).excluded is excluded
        assert pinner.excluded == {guest["uuid"]: excluded}
    assert client.put("/v1/hosts/h1/guests/nobody/excluded", json={}).status_code == 404
    assert client.put(path, json={"excluded": "yes"}).status_code == 400


def test_a_probe_with_rivals_is_a_tournament(client):
    first, *rivals = [
        client.post("/v1/hosts/h1/plans", json={"strategy": name}).json["id"]
        for name in ("shared-pool", "numa-local", "isolated")
    ]
    started = client.post(f"/v1/plans/{first}/probe", json={"rivals": rivals, "keep": True})
    found = read(Probe, started, 202)
    assert (found.plans, len(found.order)) == ((first, *rivals), 4 * TOURNAMENT_WINDOWS)
    assert (found.ranking.winner, found.outcome) == ("shared-pool", None)
    assert read(Probe, client.get(started.headers["Location"])) == found


def test_a_tournament_has_a_most_of_plans(client):
    refused = client.post("/v1/plans/plan-1/probe", json={"rivals": ["plan-2"] * MAX_PLANS})
    assert (refused.status_code, refused.json["error"]["details"]["field"]) == (400, "rivals")
