"""The OpenAPI document: APIFlask's, with the errors, headers and security of every operation, plain names, no inline
objects, and a description of every field."""

from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

from apiflask import APIFlask
from flask import Response, current_app
from pydantic import TypeAdapter

from pinner.api.access.access import REQUEST_ID
from pinner.api.description.fields import described, on_one_line
from pinner.api.description.operations import (
    CODES,
    HEADERS,
    IDEMPOTENCY_KEY,
    IF_CHANGED,
    IF_MATCH,
    IF_NONE_MATCH,
    TEXT,
    Json,
)
from pinner.api.errors import HTTP_CODES, RETRY_STATUSES, status_of
from pinner.api.idempotency import KEY
from pinner.api.negotiation import VERSION, VERSION_HEADER
from pinner.api.schemas.answers import ErrorDocument
from pinner.api.validation import COMPONENT
from pinner.model.errors import Invalid, PinnerError, StoreUnavailable
from pinner.model.run.journal import RunProgress

_ERROR = {"application/json": {"schema": {"$ref": COMPONENT.format(model="ErrorDocument")}}}
_ANSWER_HEADERS: Json = {
    "RequestId": (REQUEST_ID, "The id of this request in the log and in the audit trail.", TEXT),
    "Version": (VERSION_HEADER, "The version of this API.", {"type": "string", "examples": [VERSION]}),
    "ETag": ("ETag", "The revision, for If-Match and If-None-Match.", TEXT),
    "Link": ("Link", 'The next page: <URL>; rel="next" (RFC 8288). Absent on the last page.', TEXT),
    "RetryAfter": ("Retry-After", "Seconds after which the request may succeed.", {"type": "integer", "minimum": 1}),
}
_PARAMETERS: Json = {
    IF_MATCH: (
        "If-Match", "The ETag that the object must have, or `*`: any. Otherwise the answer is 412.",
        TEXT),
    IF_NONE_MATCH: ("If-None-Match", "`*`: the object must not exist. Otherwise the answer is 412.", TEXT),
    IF_CHANGED: ("If-None-Match", "The ETag that the client has. The answer is 304 if it is the object's.", TEXT),
    IDEMPOTENCY_KEY: (
        KEY, "A text that the client makes for one action, such as a UUID. A repetition with the same key gets the "
        "first answer; the action is not repeated.", {"type": "string", "format": "idempotency-key"}),
}  # fmt: skip

_PATH_PARAMETERS = {
    "host": "The name of a host, as GET /v1/hosts lists it.",
    "guest": "The UUID or the name of a guest.",
    "plan": "The id of a plan.",
    "run": "The id of a run.",
    "probe": "The id of a probe.",
    "snapshot": "The id of a snapshot.",
}

SECURITY: Json = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token that `pinner-manage token create` printed. The Unix socket needs no credentials.",
    },
    "certificate": {
        "type": "mutualTLS",
        "description": "A TLS client certificate whose common name has a role in `[api] tls_client_roles`.",
    },
}


def configure(app: APIFlask) -> None:
    app.config.update(AUTO_404_RESPONSE=False, AUTO_VALIDATION_ERROR_RESPONSE=False, AUTO_SERVERS=False)
    app.config["SECURITY_SCHEMES"] = SECURITY

    def complete(spec: Any) -> Json:
        document: Json = with_plain_references(dict(spec))
        components = document["components"]
        schemas = with_plain_references(components["schemas"] | _common_schemas())
        components["schemas"] = tidy(schemas)
        components["headers"] = {
            name: {"description": text, "schema": schema} for name, (_, text, schema) in _ANSWER_HEADERS.items()
        }
        components["parameters"] = {
            name: {"name": header, "in": "header", "description": text, "schema": schema}
            for name, (header, text, schema) in _PARAMETERS.items()
        }
        for path, method, operation in _operations(document):
            _describe_bodies(operation)
            _add_common(path, method, operation)
        return document

    app.spec_processor(complete)
    app.view_functions["openapi.spec"] = _written_once(app.view_functions["openapi.spec"])


def _written_once(view: Callable[[], Any]) -> Callable[[], Response]:
    """The document takes about a second, and anyone may ask."""
    lock = Lock()
    written: list[bytes] = []

    def spec() -> Response:
        with lock:
            if not written:
                written.append(current_app.make_response(view()).get_data())
        return Response(written[0], mimetype="application/json")

    return spec


def _common_schemas() -> Json:
    adapters: list[TypeAdapter[Any]] = [TypeAdapter(ErrorDocument), TypeAdapter(RunProgress)]
    _, shared = TypeAdapter.json_schemas(
        [(number, "serialization", adapter) for number, adapter in enumerate(adapters)], ref_template=COMPONENT
    )
    return dict(shared["$defs"])


def _operations(spec: Json) -> Iterator[tuple[str, str, Json]]:
    for path, operations in spec["paths"].items():
        for method, operation in operations.items():
            yield path, method, operation


def _describe_bodies(operation: Json) -> None:
    bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
    for body in bodies:
        for content in body.get("content", {}).values():
            name = plain_name(content["schema"].get("$ref", "").rpartition("/")[2])
            if name in EXAMPLES:
                content["examples"] = {key: {"value": value} for key, value in EXAMPLES[name].items()}
            if body is bodies[0]:
                body["required"] = True


def needs_credentials(path: str) -> bool:
    return path.startswith("/v1/") or path == "/metrics"


def _add_common(path: str, method: str, operation: Json) -> None:
    versioned = needs_credentials(path)
    if versioned:
        operation["security"] = [{name: []} for name in SECURITY]
    parameters = [*operation.pop(HEADERS, ()), *([IDEMPOTENCY_KEY] if method == "post" else ())]
    references = [{"$ref": f"#/components/parameters/{name}"} for name in parameters]
    described = [_with_description(parameter) for parameter in operation.get("parameters", ())]
    operation["parameters"] = [*described, *references]
    codes = {code: status_of(code) for code in (Invalid.code, PinnerError.code, *operation.get(CODES, ()))}
    if versioned:
        codes[StoreUnavailable.code] = status_of(StoreUnavailable.code)
    if method == "post":
        codes |= {"in_progress": 409, "key_reused": 422}
    codes |= {HTTP_CODES[status]: status for status in _statuses(versioned, method)}
    responses = operation["responses"]
    for status in sorted(set(codes.values())):
        names = sorted(code for code in codes if codes[code] == status)
        responses[str(status)] = {"description": f"code: {', '.join(names)}", "content": _ERROR}
    for status, answer in responses.items():
        answer["headers"] = {
            _ANSWER_HEADERS[name][0]: {"$ref": f"#/components/headers/{name}"}
            for name in _answer_headers(int(status), operation["operationId"])
        }


def _with_description(parameter: Json) -> Json:
    if parameter["in"] == "path":
        return parameter | {"description": _PATH_PARAMETERS[parameter["name"]]}
    text = {"description": on_one_line(parameter["schema"]["description"])}
    return parameter | text | {"schema": parameter["schema"] | text}


def _answer_headers(status: int, operation: str) -> Iterator[str]:
    yield from ("RequestId", "Version")
    if status == 200 and operation in ("show_policy", "set_policy"):
        yield "ETag"
    if status in (200, 304) and operation == "show_plan":
        yield "ETag"
    if status == 200 and operation.startswith("list_") and operation != "list_versions":
        yield "Link"
    if status in RETRY_STATUSES:
        yield "RetryAfter"


def _statuses(versioned: bool, method: str) -> Iterator[int]:
    """With these a request is refused before it reaches the service."""
    yield from (406, 408, 411, 413, 431)
    if method in ("post", "put"):
        yield 415
    if versioned:
        yield from (401, 403, 429)


REF = "#/components/schemas/"


def tidy(components: Json) -> Json:
    tidied: Json = {}
    for name, schema in components.items():
        plain = plain_name(name)
        tidied[plain] = described(plain, _without_titles(schema)) | {"title": plain}
    for name in tuple(tidied):
        for field, schema in tidied[name].get("properties", {}).items():
            if "additionalProperties" in schema:
                part = name + field.title().replace("_", "")
                tidied[part] = {"type": "object", "title": part} | schema
                tidied[name]["properties"][field] = {"$ref": REF + part, "description": schema.get("description", "")}
    return dict(sorted(tidied.items()))


def plain_name(name: str) -> str:
    """``RunPage`` for pydantic's ``Page_Run_``, and ``Tap`` for APIFlask's ``Guest.Tap``."""
    name = name.rpartition(".")[2]
    if name.startswith("Page_"):
        item = name.removeprefix("Page_").rstrip("_")
        return ("Name" if item == "str" else item) + "Page"
    return name


def with_plain_references(value: Any) -> Any:
    match value:
        case {"$ref": str(reference)}:
            return value | {"$ref": REF + plain_name(reference.removeprefix(REF))}
        case dict():
            return {key: with_plain_references(part) for key, part in value.items()}
        case list():
            return [with_plain_references(part) for part in value]
    return value


def _without_titles(schema: Json) -> Json:
    """pydantic's titles repeat the fields' names and confuse generators."""
    properties = {
        name: {key: value for key, value in field.items() if key != "title"}
        for name, field in schema.get("properties", {}).items()
    }
    return schema | {"properties": properties} if properties else schema


_GUEST = "6a5b7a0e-0000-4000-8000-000000000001"
_RUN = {
    "id": "run-0922af3478d4",
    "kind": "apply",
    "host": "compute1",
    "plan": "plan-0922af3478d4593b",
    "actor": "ann",
    "origin": "192.0.2.7",
    "state": "applied",
    "started_at": "2026-11-21T10:00:00Z",
    "ended_at": "2026-11-21T10:00:01Z",
    "persist": False,
    "undoes": "",
    "error": "",
    "migrate_memory": False,
    "all_or_nothing": False,
    "recovered": "",
}
_REQUEST = {"strategy": "numa-local", "excluded_guests": ["db1"]}

EXAMPLES: dict[str, dict[str, Any]] = {
    "NewPlan": {
        "defaults": {},
        "one strategy": {"strategy": "numa-local", "housekeeping": "0-1", "emulator": "auto"},
        "one guest": {"guests": ["web1"], "sample_seconds": 0},
    },
    "NewSnapshot": {"without CPU use": {"sample_seconds": 0}},
    "NewApply": {"live": {}, "persistent": {"persist": True}},
    "NewPolicy": {"observe": {"mode": "observe"}, "enforce": {"mode": "enforce", "request": _REQUEST}},
    "NewExclusion": {"exclude": {"excluded": True}, "include": {"excluded": False}},
    "NewEvent": {"reboot": {"host": "compute1", "guest": _GUEST, "event": "instance.reboot.end", "source": "nova"}},
    "NewLeavingEvent": {
        "migration": {"host": "compute1", "guest": _GUEST, "event": "instance.live_migration_pre.start", "cpus": "0-15"}
    },
    "Run": {"applied": _RUN},
    "RunPage": {"one run": {"items": [_RUN], "next": ""}},
    "PlanSummaryPage": {
        "one plan": {
            "items": [
                {
                    "id": "plan-0922af3478d4593b",
                    "host": "compute1",
                    "strategy": "shared-pool",
                    "created_at": "2026-11-21T10:00:00Z",
                    "changes": 7,
                    "unplaced": 0,
                    "blocked": "",
                }
            ],
            "next": "plan-0922af3478d4593b",
        }
    },
    "NamePage": {"one host": {"items": ["compute1"], "next": ""}},
    "GuestExclusion": {"excluded": {"uuid": _GUEST, "name": "web1", "excluded": True}},
    "Health": {"ok": {"status": "ok"}},
    "ErrorDocument": {
        "wrong input": {
            "error": {
                "code": "invalid",
                "message": "housekeeping: '0-99' is not valid: CPUs of this host; it has no 16-99",
                "details": {"field": "housekeeping", "value": "0-99", "expected": "CPUs of this host; it has no 16-99"},
                "request_id": "req-5f0f7a52-26b5-4bd3-8e3a-2f6f3a8f5a10",
            }
        }
    },
}
