"""Requests from HTTP to the database and back, with the real service and planner."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from support.hosts import cpus
from support.server.access import make_control
from support.server.real_service import real_service
from support.server.unix_http import on_unix_socket
from support.store.database_servers import ABOVE_THE_STORE
from support.values import EVIL

from pinner.api.app import create_app
from pinner.model.errors import NovaConflict

PLANS = "/v1/hosts/compute1/plans"


@pytest.fixture(scope="module", params=ABOVE_THE_STORE)
def service(request, databases, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pinner")
    with real_service(folder, databases.own(request.param, folder)) as (pinner, _):
        yield pinner


@pytest.fixture
def agent_and_client(tmp_path, database):
    with real_service(tmp_path, database) as (pinner, agent):
        yield agent, on_unix_socket(create_app(pinner, control=make_control(), max_body_bytes=4096).test_client())


@pytest.fixture
def client(service):
    return on_unix_socket(create_app(service, control=make_control(), max_body_bytes=4096).test_client())


def test_a_plan_is_made_applied_and_rolled_back(agent_and_client):
    agent, client = agent_and_client
    plan = client.post(PLANS, json={"sample_seconds": 0}).json
    assert len(plan["changes"]) == 5
    run = client.post(f"/v1/plans/{plan['id']}/apply", json={}).json
    assert client.get(f"/v1/runs/{run['id']}/events").text.count("event: change") == 5
    assert set(agent.host.kernel().values()) == {change["after"] for change in plan["changes"]} | {"0-6"}
    undo = client.post(f"/v1/runs/{run['id']}/rollback", json={}).json
    assert client.get(f"/v1/runs/{undo['id']}/events").text.endswith("\n\n")
    assert client.get(f"/v1/runs/{undo['id']}").json["run"]["state"] == "rolled_back"
    assert set(agent.host.kernel().values()) == {"0-6"}
    actions = [record["action"] for record in client.get("/v1/audit").json["items"]]
    assert {"snapshot.take", "plan.create", "run.apply", "run.change", "run.rollback"} <= {*actions}
    assert client.get("/v1/audit/verify").json["ok"] is True


VCPU = {"owner": "00000000-0000-4000-8000-000000000001", "kind": "vcpu", "part": 0, "cpus": "3"}
DAEMON = {"owner": "90", "kind": "process", "part": None, "cpus": "0"}


def test_a_placement_by_hand_is_made_applied_and_rolled_back(agent_and_client):
    agent, client = agent_and_client
    before = agent.host.kernel()
    plan = client.post(PLANS, json={"sample_seconds": 0, "placement": [VCPU, DAEMON]}).json
    assert (plan["request"]["strategy"], plan["request"]["placement"]) == ("manual", [VCPU, DAEMON])
    run = client.post(f"/v1/plans/{plan['id']}/apply", json={"allow_worse": True}).json
    assert client.get(f"/v1/runs/{run['id']}/events").text.endswith("\n\n")
    moved = {tid: mask for tid, mask in agent.host.kernel().items() if mask != before[tid]}
    assert sorted(moved.values()) == ["0", "0", "3"]
    undo = client.post(f"/v1/runs/{run['id']}/rollback", json={}).json
    assert client.get(f"/v1/runs/{undo['id']}/events").text.endswith("\n\n")
    assert agent.host.kernel() == before


@pytest.mark.parametrize(
    ("pins", "value", "expected"),
    [
        ([VCPU | {"cpus": "7"}], f"{VCPU['owner']} vcpu 0=7", "7 is offline"),
        ([VCPU | {"cpus": "99"}], f"{VCPU['owner']} vcpu 0=99", "99 is absent"),
        ([VCPU | {"part": 2}], f"{VCPU['owner']} vcpu 2=3", "its parts of the kind vcpu: 0-1"),
        ([DAEMON | {"cpus": "7"}], "90 process=7", "7 is offline"),
    ],
)
def test_a_wrong_placement_by_hand_names_the_part_and_what_it_must_be(client, pins, value, expected):
    answer = client.post(PLANS, json={"sample_seconds": 0, "placement": pins})
    error = answer.json["error"]
    assert (answer.status_code, error["code"]) == (400, "invalid")
    assert (error["details"]["field"], error["details"]["value"]) == ("placement", value)
    assert expected in error["message"]


def test_a_policy_names_its_processes_because_another_one_may_get_a_pid(client):
    answer = client.put("/v1/hosts/compute1/policy", json={"request": {"placement": [DAEMON]}})
    details = answer.json["error"]["details"]
    assert (answer.status_code, details["field"], details["value"]) == (400, "placement", "90 process=0")
    assert client.get("/v1/hosts/compute1/policy").status_code == 404


@pytest.mark.fault(59)
def test_all_runs_of_a_host_are_rolled_back(agent_and_client):
    """The centre's copy of every run is closed, the trails agree, and the host has no recorded placement any more."""
    agent, client = agent_and_client
    for strategy in ("shared-pool", "numa-local"):
        plan = client.post(PLANS, json={"sample_seconds": 0, "strategy": strategy}).json
        run = client.post(f"/v1/plans/{plan['id']}/apply", json={}).json
        # The client reads a stream only as far as it is asked to: to its end, the run has ended.
        assert client.get(f"/v1/runs/{run['id']}/events").text.endswith("\n\n")
    assert client.get("/v1/hosts/compute1/drift").json["placement"]
    undo = client.post("/v1/hosts/compute1/rollback", json={}).json
    assert client.get(f"/v1/runs/{undo['id']}/events").text.endswith("\n\n")
    assert set(agent.host.kernel().values()) == {"0-6"}
    runs = client.get("/v1/runs").json["items"]
    assert [(run["kind"], run["state"]) for run in runs] == [
        ("rollback", "rolled_back"),
        ("apply", "rolled_back"),
        ("apply", "rolled_back"),
    ]
    states = {entry["state"] for run in runs for entry in client.get(f"/v1/runs/{run['id']}").json["entries"]}
    assert states == {"undone"}
    drift = client.get("/v1/hosts/compute1/drift").json
    assert (drift["placement"], drift["drifts"]) == ("", [])
    assert client.get("/v1/audit/verify").json["ok"] is True


def test_of_two_applies_at_the_same_time_one_is_refused(agent_and_client):
    agent, client = agent_and_client
    plan = client.post(PLANS, json={}).json["id"]
    agent.host.gate = threading.Semaphore(0)

    def apply(_):
        return on_unix_socket(client.application.test_client()).post(f"/v1/plans/{plan}/apply", json={})

    with ThreadPoolExecutor(2) as both:
        answers = list(both.map(apply, range(2)))
    agent.host.gate.release(100)
    assert sorted(answer.status_code for answer in answers) == [202, 409]
    (refused,) = (answer.json["error"] for answer in answers if answer.status_code == 409)
    assert refused["code"] == "host_busy"
    assert refused["details"]["host"] == "compute1"


@pytest.mark.fault(60)
def test_eight_writers_get_no_500_and_lose_no_record(agent_and_client):
    _, client = agent_and_client
    writers = [on_unix_socket(client.application.test_client()) for _ in range(8)]

    def put(number):
        return writers[number % 8].put("/v1/hosts/compute1/policy", json={}).status_code

    with ThreadPoolExecutor(8) as pool:
        assert {*pool.map(put, range(200))} == {200}
    found = client.get("/v1/audit/verify").json
    records = client.get("/v1/audit?limit=500").json["items"]
    assert found["result"] == "intact"
    assert [record["action"] for record in records].count("policy.set") == 200


def test_a_guest_is_named_by_uuid_or_by_name(client):
    uuid = client.get("/v1/hosts/compute1/guests").json["items"][0]["uuid"]
    for name in (uuid, EVIL):
        assert client.post(PLANS, json={"guests": [name]}).status_code == 201


@pytest.mark.parametrize(
    ("body", "code", "named"),
    [
        ({"housekeeping": "8"}, "invalid", "8"),
        ({"housekeeping": "7"}, "invalid", "7"),
        ({"emulator": "0-1,99"}, "invalid", "99"),
        ({"housekeeping": "0-1", "emulator": "1-2"}, "invalid", "1"),
        ({"housekeeping": "0-3", "emulator": "4-6"}, "no_fit", "vCPU"),
        ({"guests": ["ghost"]}, "not_found", "ghost"),
        ({"strategy": "fastest"}, "not_found", "fastest"),
        ({"snapshot": "f" * 64}, "not_found", "f" * 64),
    ],
)
def test_requests_that_the_planner_refuses(client, body, code, named):
    before = client.get("/v1/plans").json
    answer = client.post(PLANS, json=body)
    error = answer.json["error"]
    assert error["code"] == code, error
    assert 400 <= answer.status_code < 500
    assert named in error["message"]
    assert client.get("/v1/plans").json == before


@pytest.mark.fault(15)
def test_a_conflict_with_nova_names_both_sides(agent_and_client):
    agent, client = agent_and_client
    before = client.post(PLANS, json={}).json["id"]
    agent.host.taken = replace(agent.host.taken, dedicated=cpus("4-5"))
    made = client.post(PLANS, json={"housekeeping": "0-1,4"})
    agent.host.refusal = NovaConflict("guest g1 vcpu 0 on CPUs 2-6", "Nova's cpu_dedicated_set 4-5", cpus("4-5"))
    applied = client.post(f"/v1/plans/{before}/apply", json={})
    assert [answer.status_code for answer in (made, applied)] == [409, 409]
    assert [answer.json["error"]["code"] for answer in (made, applied)] == ["nova_conflict"] * 2
    assert [answer.json["error"]["details"] for answer in (made, applied)] == [
        {"ours": "housekeeping 0-1,4", "theirs": "Nova's cpu_dedicated_set 4-5", "cpus": "4"},
        {"ours": "guest g1 vcpu 0 on CPUs 2-6", "theirs": "Nova's cpu_dedicated_set 4-5", "cpus": "4-5"},
    ]


@pytest.mark.parametrize("marker", ["unknown", "0", "-1", "9" * 30, "\u0663", "%00", "1e3"])
@pytest.mark.parametrize("path", ["/v1/plans", "/v1/runs", "/v1/audit"])
def test_unknown_markers_are_refused(client, path, marker):
    answer = client.get(f"{path}?marker={marker}")
    assert (answer.status_code, answer.json["error"]["details"]["field"]) == (400, "marker")


def test_pages_make_up_the_whole_list(client):
    for _ in range(3):
        client.post(PLANS, json={})
    for path in ("/v1/plans", "/v1/audit"):
        all_items = client.get(path).json["items"]
        found, marker = [], ""
        while len(found) < len(all_items):
            page = client.get(f"{path}?limit=2&marker={marker}").json
            found += page["items"]
            marker = page["next"]
        assert (found, marker) == (all_items, "")
