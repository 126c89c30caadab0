"""Wrong input is refused, the answer names the field and the value, and nothing changes."""

import json

import pytest

PLANS = "/v1/hosts/h1/plans"
AUDIT = "/v1/audit"
JSON = "application/json"

SENTENCES = [
    (PLANS, {"repack": True}, "repack: True is not valid: there is no field of this name"),
    ("/v1/events/guest-started", {}, "guest: None is not valid: this field is required"),
]
PIN = {"owner": "g1", "kind": "vcpu", "part": 0, "cpus": "1"}
BODIES = [
    # body, status, code, details that the answer must contain
    ({"strategy": "fastest"}, 404, "not_found", {"kind": "strategy", "name": "fastest"}),
    ({"guests": ["ghost"]}, 404, "not_found", {"kind": "guest", "name": "ghost"}),
    ({"snapshot": "no-such"}, 404, "not_found", {"kind": "snapshot", "name": "no-such"}),
    ({"replaces": "no-such"}, 404, "not_found", {"kind": "plan", "name": "no-such"}),
    ({"replaces": 3}, 400, "invalid", {"field": "replaces", "value": 3}),
    ({"housekeeping": "0-"}, 400, "invalid", {"field": "housekeeping", "value": "0-"}),
    ({"housekeeping": ""}, 400, "invalid", {"field": "housekeeping", "value": ""}),
    ({"housekeeping": 3}, 400, "invalid", {"field": "housekeeping", "value": 3}),
    ({"emulator": "9"}, 400, "invalid", {"field": "emulator", "value": "9"}),
    ({"emulator": "3-1"}, 400, "invalid", {"field": "emulator", "value": "3-1"}),
    ({"emulator": "99999"}, 400, "invalid", {"field": "emulator", "value": "99999"}),
    ({"busy_threshold": -1}, 400, "invalid", {"field": "busy_threshold", "value": -1}),
    ({"busy_threshold": "2"}, 400, "invalid", {"field": "busy_threshold", "value": "2"}),
    ({"busy_threshold": True}, 400, "invalid", {"field": "busy_threshold", "value": True}),
    ({"busy_threshold": None}, 400, "invalid", {"field": "busy_threshold", "value": None}),
    ({"minimum_cores": 0}, 400, "invalid", {"field": "minimum_cores", "value": 0}),
    ({"minimum_cores": 1.5}, 400, "invalid", {"field": "minimum_cores", "value": 1.5}),
    ({"weights": {"extra_l3": -1}}, 400, "invalid", {"field": "weights.extra_l3", "value": -1}),
    ({"weights": {"extra_l3": "1"}}, 400, "invalid", {"field": "weights.extra_l3", "value": "1"}),
    ({"weights": {"extra_l3": True}}, 400, "invalid", {"field": "weights.extra_l3", "value": True}),
    ({"weights": {"caches": 1}}, 400, "invalid", {"field": "weights.caches", "value": 1}),
    ({"weights": [1]}, 400, "invalid", {"field": "weights", "value": [1]}),
    ({"moves": -1}, 400, "invalid", {"field": "moves", "value": -1}),
    ({"moves": 101}, 400, "invalid", {"field": "moves", "value": 101}),
    ({"moves": 0.5}, 400, "invalid", {"field": "moves", "value": 0.5}),
    ({"smt": "maybe"}, 400, "invalid", {"field": "smt", "value": "maybe"}),
    ({"guests": "web"}, 400, "invalid", {"field": "guests", "value": "web"}),
    ({"guests": [1]}, 400, "invalid", {"field": "guests.0", "value": 1}),
    ({"sample_seconds": 301}, 400, "invalid", {"field": "sample_seconds", "value": 301}),
    ({"snapshot": "no-such", "sample_seconds": 1}, 400, "invalid", {"field": "sample_seconds", "value": 1}),
    ({"placement": [PIN | {"kind": "disk"}]}, 400, "invalid", {"field": "placement.0.kind", "value": "disk"}),
    ({"placement": [PIN | {"cpus": ""}]}, 400, "invalid", {"field": "placement.0.cpus", "value": ""}),
    ({"placement": [PIN | {"cpus": "3-1"}]}, 400, "invalid", {"field": "placement.cpus", "value": "3-1"}),
    ({"placement": [PIN | {"part": -1}]}, 400, "invalid", {"field": "placement.0.part", "value": -1}),
    ({"placement": [PIN | {"part": None}]}, 400, "invalid", {"field": "placement", "value": "g1 vcpu=1"}),
    ({"placement": [PIN, PIN | {"cpus": "2"}]}, 400, "invalid", {"field": "placement", "value": "g1 vcpu 0=1"}),
    ({"placement": [PIN, PIN | {"kind": "all", "part": None}]}, 400, "invalid", {"field": "placement"}),
    ({"placement": [PIN], "guests": ["g2"]}, 400, "invalid", {"field": "guests", "value": ["g2"]}),
    ({"placement": [PIN], "strategy": "isolated"}, 400, "invalid", {"field": "strategy", "value": "isolated"}),
    ({"placement": []}, 400, "invalid", {"field": "placement", "value": []}),
    ({"placement": [PIN], "vcpus": "0-1"}, 400, "invalid", {"field": "vcpus", "value": "0-1"}),
    ({"placement": [PIN], "housekeeping": "0-1"}, 400, "invalid", {"field": "housekeeping", "value": "0-1"}),
    ({"placement": [PIN], "emulator": "0-1"}, 400, "invalid", {"field": "emulator", "value": "0-1"}),
    ({"placement": [PIN], "smt": "isolate"}, 400, "invalid", {"field": "smt", "value": "isolate"}),
    ({"placement": [PIN], "busy_threshold": 0}, 400, "invalid", {"field": "busy_threshold", "value": 0}),
    ({"placement": [PIN], "solver_budget": 1}, 400, "invalid", {"field": "solver_budget", "value": 1}),
    ({"placement": [PIN], "with_processes": True}, 400, "invalid", {"field": "with_processes", "value": True}),
    ({"placement": [PIN], "with": ["irqs"]}, 400, "invalid", {"field": "with", "value": ["irqs"]}),
    ({"sample_second": 1}, 400, "invalid", {"field": "sample_second", "value": 1}),
    ([], 400, "invalid", {"field": "body"}),
    (None, 400, "invalid", {"field": "body", "value": None}),
]
TEXTS = [
    ('{"busy_threshold": NaN}', 400, "invalid", {"field": "busy_threshold", "value": "NaN"}),
    ('{"weights": {"extra_l3": NaN}}', 400, "invalid", {"field": "weights.extra_l3", "value": "NaN"}),
    ('{"busy_threshold": Infinity}', 400, "invalid", {"field": "busy_threshold", "value": "Infinity"}),
    ('{"busy_threshold": 1e999}', 400, "invalid", {"field": "busy_threshold", "value": "Infinity"}),
    ('{"strategy": ', 400, "invalid", {"field": "body", "value": '{"strategy": '}),
    ('{"strategy": "\\ud800"}', 400, "invalid", {"field": "body"}),
    ("[" * 4000, 400, "invalid", {"field": "body"}),
    (b'{"strategy": "\xff"}', 400, "invalid", {"field": "body", "value": r"b'\xff'"}),
    ("[" * 5000, 413, "too_large", {}),
]
QUERIES = [
    ("/v1/hosts?limit=0", {"field": "limit", "value": 0}),
    ("/v1/hosts?limit=501", {"field": "limit", "value": 501}),
    ("/v1/plans?limit=ten", {"field": "limit", "value": "ten"}),
    ("/v1/plans?limit=%205", {"field": "limit", "value": " 5"}),
    ("/v1/plans?limit=1_0", {"field": "limit", "value": "1_0"}),
    ("/v1/plans?limit=5.5", {"field": "limit", "value": 5.5}),
    ("/v1/plans?limit=1&limit=2", {"field": "limit", "value": ["1", "2"]}),
    ("/v1/plans?marker=unknown", {"field": "marker", "value": "unknown"}),
    ("/v1/runs?hosts=h1", {"field": "hosts", "value": "h1"}),
    ("/v1/hosts/h1/topology?deep=1", {"field": "deep", "value": "1"}),
    ("/v1/hosts/h1/processes?busy=yes", {"field": "busy", "value": "yes"}),
    ("/v1/hosts/h1/processes?busy_threshold=NaN", {"field": "busy_threshold", "value": "NaN"}),
    ("/v1/hosts/h1/processes?busy_threshold=5", {"field": "busy_threshold", "value": 5}),
    ("/v1/hosts/h1/processes?busy=false&busy_threshold=2", {"field": "busy_threshold", "value": 2}),
    ("/v1/hosts/h1/capacity?page_kib=2048", {"field": "page_kib", "value": 2048}),
    ("/v1/hosts/h1/capacity?vcpus=4&page_kib=2048", {"field": "page_kib", "value": 2048}),
    ("/v1/hosts/h1/capacity?page_kib=2048&memory_kib=0", {"field": "page_kib", "value": 2048}),
    ("/v1/hosts/h1?sample_seconds=-1", {"field": "sample_seconds", "value": -1}),
    ("/v1/hosts/h1?sample_seconds=1e9", {"field": "sample_seconds", "value": 1e9}),
    (f"{AUDIT}?since=yesterday", {"field": "since", "value": "yesterday"}),
    (f"{AUDIT}?since=2026-11-21", {"field": "since", "value": "2026-11-21"}),
    (f"{AUDIT}?since=2026-11-21T10:00:00", {"field": "since", "value": "2026-11-21T10:00:00"}),
    (f"{AUDIT}?since=1763719200", {"field": "since", "value": "1763719200"}),
    (f"{AUDIT}?since=0001-01-01T00:00:00%2B23:00", {"field": "since", "value": "0001-01-01T00:00:00+23:00"}),
    ("/?pretty=1", {"field": "pretty", "value": "1"}),
    ("/openapi.json?x=1", {"field": "x", "value": "1"}),
]
UNKNOWN = [
    ("get", "/v1/hosts/none", "host"),
    ("get", "/v1/hosts/none/topology", "host"),
    ("get", "/v1/hosts/none/processes", "host"),
    ("get", "/v1/hosts/none/guests", "host"),
    ("post", "/v1/hosts/none/snapshot", "host"),
    ("post", "/v1/hosts/none/plans", "host"),
    ("get", "/v1/snapshots/none", "snapshot"),
    ("get", "/v1/plans/none", "plan"),
    ("get", "/v1/plans/none?format=shell", "plan"),
    ("post", "/v1/plans/none/apply", "plan"),
    ("get", "/v1/runs/none", "run"),
    ("get", "/v1/runs/none/events", "run"),
    ("post", "/v1/runs/none/rollback", "run"),
]


@pytest.fixture(autouse=True)
def nothing_changed(pinner):
    before = pinner.state()
    yield
    assert pinner.state() == before


def assert_refused(answer, status, code, details):
    assert answer.status_code == status, answer.text
    assert answer.content_type == JSON
    error = answer.json["error"]
    assert set(error) == {"code", "message", "details", "request_id"}
    assert error["code"] == code
    assert error["request_id"] == answer.headers["X-Openstack-Request-Id"]
    assert error["details"].items() >= details.items()
    assert error["message"]


@pytest.mark.parametrize(("body", "status", "code", "details"), BODIES, ids=[str(row[0]) for row in BODIES])
def test_bodies_with_a_wrong_field(client, body, status, code, details):
    assert_refused(client.post(PLANS, data=json.dumps(body), content_type=JSON), status, code, details)


@pytest.mark.fault(38)
@pytest.mark.parametrize(("text", "status", "code", "details"), TEXTS, ids=[str(row[0][:30]) for row in TEXTS])
def test_texts_that_are_not_valid_json(client, text, status, code, details):
    assert_refused(client.post(PLANS, data=text, content_type=JSON), status, code, details)


@pytest.mark.parametrize(("path", "body", "sentence"), SENTENCES)
def test_the_message_says_what_is_wrong_with_the_field(client, path, body, sentence):
    assert client.post(path, json=body).json["error"]["message"] == sentence


def test_a_wrong_time_is_answered_with_a_right_one(client):
    for time in ("yesterday", "2026-11-21"):
        message = client.get(f"{AUDIT}?since={time}").json["error"]["message"]
        assert (
            message == f"since: '{time}' is not valid: a date and time with a time zone, such as 2026-11-21T10:00:00Z"
        )


@pytest.mark.parametrize(("url", "details"), QUERIES)
def test_wrong_query_parameters(client, url, details):
    assert_refused(client.get(url), 400, "invalid", details)


@pytest.mark.parametrize(("method", "url", "kind"), UNKNOWN)
def test_unknown_names(client, method, url, kind):
    answer = client.open(url, method=method.upper(), json={} if method == "post" else None)
    assert_refused(answer, 404, "not_found", {"kind": kind, "name": "none"})


@pytest.mark.fault(38)
@pytest.mark.parametrize(
    "name", ["a%00b", "a%0Ab", "%1b%5b31m", "%ff", "..", "%2e%2e%2fetc", "h1/", "h1%20", "%F0%9F%92%A9"]
)
def test_unusual_host_names_are_unknown(client, name):
    answer = client.get(f"/v1/hosts/{name}")
    assert answer.status_code == 404
    assert answer.json["error"]["message"].isprintable()


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
@pytest.mark.parametrize("path", [PLANS, "/v1/runs/none/rollback", "/v1/plans/none/apply", "/v1/hosts/h1/snapshot"])
def test_media_types_that_a_form_can_send_are_refused(client, path, kind):
    assert_refused(client.post(path, data="{}", content_type=kind), 415, "unsupported_media_type", {})


@pytest.mark.parametrize("coding", ["gzip", "identity, br", "x", ""])
@pytest.mark.parametrize("path", [PLANS, "/v1/runs/none/rollback"])
def test_a_coding_of_a_body_is_refused_and_not_ignored(client, path, coding):
    answer = client.post(path, data="{}", content_type=JSON, headers={"Content-Encoding": coding})
    assert_refused(answer, 415, "unsupported_media_type", {})
    sentence = f"Content-Encoding: {coding!r} is not supported; send the body as it is (identity)"
    assert answer.json["error"]["message"] == sentence


def test_the_coding_identity_is_none(client):
    headers = {"Content-Encoding": "Identity"}
    path = "/v1/runs/none/rollback"
    assert client.post(path, data="{}", content_type=JSON, headers=headers).status_code == 404


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/runs?host=a%00", "host"),
        ("/v1/audit?host=h1&actor=%00", "actor"),
        ("/v1/hosts/h1/measures?guest=%00", "guest"),
        ("/v1/plans?x=%00", "x"),
    ],
)
def test_a_parameter_with_nul_is_named(client, path, name):
    assert_refused(client.get(path), 400, "invalid", {"field": name})


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({"snapshot": "a\0"}, "snapshot"),
        ({"strategy": "per-flavor", "excluded_guests": ["a", "b\0"]}, "excluded_guests"),
        ({"processes": ["a\0"]}, "processes"),
    ],
)
def test_a_text_of_a_body_with_nul_is_named(client, body, name):
    assert_refused(client.post("/v1/hosts/h1/plans", json=body), 400, "invalid", {"field": name})


def test_unknown_fields_of_bodies_are_refused(client):
    assert_refused(
        client.post("/v1/runs/x/rollback", json={"force": True}), 400, "invalid", {"field": "force", "value": True}
    )
    assert_refused(client.post("/v1/plans/x/apply", json={"persist": "no"}), 400, "invalid", {"field": "persist"})


@pytest.mark.parametrize(("seconds", "limit"), [(14, "than or equal to 15"), (241, "than or equal to 240")])
def test_a_watch_that_is_too_short_or_too_long_is_refused(client, seconds, limit):
    answer = client.post("/v1/plans/x/apply", json={"watch_seconds": seconds})
    assert_refused(answer, 400, "invalid", {"field": "watch_seconds"})
    assert limit in answer.json["error"]["message"]
    assert str(seconds) in answer.json["error"]["message"]


def test_unknown_paths_and_methods(client):
    assert_refused(client.get("/v2/hosts"), 404, "not_found", {"kind": "path", "name": "/v2/hosts"})
    answer = client.delete("/v1/hosts")
    assert_refused(answer, 405, "method_not_allowed", {"method": "DELETE", "allowed": ["GET", "HEAD"]})
    assert "GET" in answer.headers["Allow"]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ('{"strategy": "numa-local", "strategy": "shared-pool"}', "strategy"),
        ('{"weights": {"overcommit": 1, "overcommit": 2}}', "overcommit"),
        ('{"guests": [], "\\u0067uests": ["g1"]}', "guests"),
    ],
)
def test_a_field_that_is_given_twice_is_refused(client, text, field):
    """Another program that reads the body may take the other value."""
    assert_refused(client.post(PLANS, data=text, content_type=JSON), 400, "invalid", {"field": field})
