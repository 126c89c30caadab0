"""The OpenAPI document: APIFlask's, with the errors, headers and security of every operation."""

from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

from apiflask import APIFlask
from flask import Response, current_app
from pydantic import TypeAdapter

from pinner.api.access.access import REQUEST_ID
from pinner.api.description.components import EXAMPLES, plain_name, tidy, with_plain_references
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
    """Make ``app`` complete its document."""
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
    """The view of the document, which the first request writes in about a second; the others get the same bytes.

    Anyone may ask for the document, so it must cost little.
    """
    lock = Lock()
    written: list[bytes] = []

    def spec() -> Response:
        with lock:
            if not written:
                written.append(current_app.make_response(view()).get_data())
        return Response(written[0], mimetype="application/json")

    return spec


def _common_schemas() -> Json:
    """The components that only this module refers to: ErrorDocument and RunProgress, with their parts."""
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
    """Mark the request's body as required; add the examples."""
    bodies = [operation.get("requestBody", {}), *operation["responses"].values()]
    for body in bodies:
        for content in body.get("content", {}).values():
            name = plain_name(content["schema"].get("$ref", "").rpartition("/")[2])
            if name in EXAMPLES:
                content["examples"] = {key: {"value": value} for key, value in EXAMPLES[name].items()}
            if body is bodies[0]:
                body["required"] = True


def needs_credentials(path: str) -> bool:
    """Whether every method of the path needs credentials; the public paths tell nothing about a host."""
    return path.startswith("/v1/") or path == "/metrics"


def _add_common(path: str, method: str, operation: Json) -> None:
    versioned = needs_credentials(path)
    if versioned:
        operation["security"] = [{name: []} for name in SECURITY]
    parameters = [*operation.pop(HEADERS, ()), *([IDEMPOTENCY_KEY] if method == "post" else ())]
    references = [{"$ref": f"#/components/parameters/{name}"} for name in parameters]
    own = [parameter | {"description": _description(parameter)} for parameter in operation.get("parameters", ())]
    operation["parameters"] = [*own, *references]
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


def _description(parameter: Json) -> str:
    """The description of a parameter of the path, or of the query, whose schema has it."""
    if parameter["in"] == "path":
        return _PATH_PARAMETERS[parameter["name"]]
    return str(parameter["schema"]["description"])


def _answer_headers(status: int, operation: str) -> Iterator[str]:
    """The names of the answer's header fields, in _ANSWER_HEADERS."""
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
    """The statuses of requests that are refused before they reach the service."""
    yield from (406, 408, 411, 413, 431)
    if method in ("post", "put"):
        yield 415
    if versioned:
        yield from (401, 403, 429)
