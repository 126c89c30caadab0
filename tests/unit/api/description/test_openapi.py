"""The OpenAPI document describes the code. test_schemathesis.py checks that the code does what the document says."""

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import jsonschema_rs
from support.fakes.in_memory_service import InMemoryService
from support.server.access import make_control

from pinner.api.app import create_app
from pinner.api.description.openapi import EXAMPLES, needs_credentials
from pinner.api.errors import status_of


def make_app():
    return create_app(InMemoryService(), control=make_control(), max_body_bytes=4096)


@cache
def document():
    """The document, which no test changes: it takes 0.3 s to make."""
    return make_app().test_client().get("/openapi.json").json


def operations(spec):
    return [
        (path, method, operation) for path, methods in spec["paths"].items() for method, operation in methods.items()
    ]


def test_it_is_openapi_31_and_every_reference_exists():
    spec = document()
    assert spec["openapi"].startswith("3.1")
    for name in re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(spec)):
        assert name in spec["components"]["schemas"]


def test_its_paths_are_the_routes():
    app = make_app()
    served = {re.sub(r"<(\w+)>", r"{\1}", rule.rule) for rule in app.url_map.iter_rules()}
    assert {path for path, _, _ in operations(document())} == served - {"/openapi.json"}


def test_the_errors_of_every_operation():
    for path, method, operation in operations(document()):
        answers = set(operation["responses"])
        assert {"400", "411", "413", "500"} <= answers, path
        assert ("415" in answers) == (method in ("post", "put")), path
        for status in ("401", "403", "429", "503"):
            expected = needs_credentials(path) or (path, status) == ("/healthcheck/ready", "503")
            assert (status in answers) == expected, path
        for code in operation.get("x-error-codes", ()):
            assert str(status_of(code)) in answers


def test_a_watch_has_its_limits():
    properties = document()["components"]["schemas"]["NewApply"]["properties"]
    watch, undo = properties["watch_seconds"], properties["undo_if_worse"]
    (seconds,) = (each for each in watch["anyOf"] if each["type"] == "integer")
    assert (seconds["minimum"], seconds["maximum"]) == (15, 240)
    assert "known before the run for 10 times as long" in watch["description"]
    assert "Refused while no measure is known for long enough" in undo["description"]


def test_every_operation_but_the_public_ones_needs_credentials():
    spec = document()
    schemes = spec["components"]["securitySchemes"]
    assert {name: scheme["type"] for name, scheme in schemes.items()} == {"bearer": "http", "certificate": "mutualTLS"}
    for path, _, operation in operations(spec):
        expected = [{"bearer": []}, {"certificate": []}] if needs_credentials(path) else None
        assert operation.get("security") == expected, path


def test_requests_refuse_unknown_fields():
    schemas = document()["components"]["schemas"]
    for name in (
        "NewPlan",
        "NewApply",
        "NewSnapshot",
        "NewRollback",
        "NewProbe",
        "NewPolicy",
        "PolicyRequest",
        "NewExclusion",
    ):
        assert schemas[name]["additionalProperties"] is False
    assert schemas["Plan"]["properties"]["roles"]["$ref"] == "#/components/schemas/Roles"
    assert schemas["Roles"]["properties"]["vcpu"]["type"] == "string"


def test_everything_is_described():
    spec = document()
    for name, schema in spec["components"]["schemas"].items():
        assert schema.get("description"), name
        for field, field_schema in schema.get("properties", {}).items():
            assert "description" in field_schema or field_schema.keys() == {"$ref"}, (name, field)
    for path, method, operation in operations(spec):
        assert operation["summary"], (path, method)
        for parameter in operation.get("parameters", ()):
            assert "$ref" in parameter or parameter["description"], (path, method, parameter["name"])


def test_operations_have_plain_names():
    names = [operation["operationId"] for _, _, operation in operations(document())]
    assert len(names) == len(set(names)) == 48
    assert all(re.fullmatch("[a-z]+(_[a-z]+)+", name) for name in names)


def test_the_examples_are_valid():
    spec = document()
    for name, examples in EXAMPLES.items():
        schema = {"$ref": f"#/components/schemas/{name}", "components": spec["components"]}
        for example in examples.values():
            jsonschema_rs.validator_for(schema).validate(example)


def test_a_generated_client_has_every_operation(tmp_path):
    (tmp_path / "openapi.json").write_text(json.dumps(document()))
    (tmp_path / "config.yml").write_text("post_hooks: []\n")
    command = [Path(sys.executable).with_name("openapi-python-client"), "generate", "--path", "openapi.json"]
    options = ["--output-path", "client", "--meta", "none", "--config", "config.yml", "--fail-on-warning"]
    done = subprocess.run([*command, *options], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    made = {path.stem for path in (tmp_path / "client" / "api").glob("*/*.py")} - {"__init__"}
    assert made == {operation["operationId"] for _, _, operation in operations(document())}
