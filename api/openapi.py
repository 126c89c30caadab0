"""The OpenAPI document: APIFlask's document, completed with the errors, headers and security of every operation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from apiflask import APIFlask
from pydantic import TypeAdapter

from pinner.api.access import REQUEST_ID
from pinner.api.errors import HTTP_CODES, status_of
from pinner.api.validation import COMPONENT
from pinner.model.errors import Invalid, PinnerError, StoreUnavailable
from pinner.model.journal import RunProgress

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """An error: `code` is stable, `message` is a sentence for people, `details` are values for programs."""

    code: str
    message: str
    details: Mapping[str, Any]
    request_id: str


@dataclass(frozen=True, slots=True)
class ErrorDocument:
    """The body of every error."""

    error: ErrorBody


TEXT: Json = {"type": "string"}
EVENT: Json = {
    "description": "An event of the stream.",
    "type": "object",
    "properties": {
        "event": {"enum": ["change", "end", "error"]},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {
                "oneOf": [{"$ref": COMPONENT.format(model=name)} for name in ("RunProgress", "ErrorDocument")]
            },
        },
    },
    "required": ["event", "data"],
}
_ERROR = {"application/json": {"schema": {"$ref": COMPONENT.format(model="ErrorDocument")}}}
_CODES = "x-error-codes"


def may_raise(*kinds: type[PinnerError]) -> Json:
    """The errors that an operation may raise, without those of every operation, for APIFlask's ``doc(extensions=)``."""
    return {_CODES: [kind.code for kind in kinds]}


def media_type(media: str, schema: Json) -> dict[int | str, dict[str, str | dict[str, Json]]]:
    """One more media type of the answer with status 200, for APIFlask's ``doc(responses=)``."""
    return {200: {"description": "Successful response", "content": {media: {"schema": schema}}}}


def links(parameter: str, pointer: str, *operations: str) -> Json:
    """OpenAPI links: these operations take ``parameter`` from the JSON pointer ``pointer`` of this answer."""
    parameters = {parameter: f"$response.body#{pointer}"}
    return {operation: {"operationId": operation, "parameters": parameters} for operation in operations}


def configure(app: APIFlask) -> None:
    """Make ``app`` complete its document. Over TCP every operation below /v1 needs a bearer token."""
    app.config.update(AUTO_404_RESPONSE=False, AUTO_VALIDATION_ERROR_RESPONSE=False, AUTO_SERVERS=False)
    app.config["AUTO_OPERATION_ID"] = True
    app.config["SECURITY_SCHEMES"] = {"bearer": {"type": "http", "scheme": "bearer"}}

    def complete(spec: Any) -> Json:
        # APIFlask names the parts of a model "Model.Part". A part is the same in every model: one component is enough.
        schemas = spec["components"]["schemas"]
        schemas = {name.rpartition(".")[2]: schema for name, schema in schemas.items()} | _common_schemas()
        spec["components"]["schemas"] = dict(sorted(schemas.items()))
        spec["components"]["headers"] = {
            "RequestId": {
                "description": "The id of this request in the log and in the audit trail.",
                "schema": {"type": "string"},
            }
        }
        for path, method, operation in _operations(spec):
            _require_body(operation, spec["components"]["schemas"])
            _add_common(path, method, operation)
        return dict(spec)

    app.spec_processor(complete)


def _common_schemas() -> Json:
    """The components that this module refers to by name: ErrorDocument and RunProgress, with their parts."""
    adapters: list[TypeAdapter[Any]] = [TypeAdapter(ErrorDocument), TypeAdapter(RunProgress)]
    _, shared = TypeAdapter.json_schemas(
        [(number, "serialization", adapter) for number, adapter in enumerate(adapters)], ref_template=COMPONENT
    )
    return dict(shared["$defs"])


def _operations(spec: Json) -> Iterator[tuple[str, str, Json]]:
    for path, operations in spec["paths"].items():
        for method, operation in operations.items():
            yield path, method, operation


def _require_body(operation: Json, schemas: Json) -> None:
    """Mark the body as required where one of its fields is."""
    for content in operation.get("requestBody", {}).get("content", {}).values():
        name = content["schema"]["$ref"].rpartition("/")[2]
        operation["requestBody"]["required"] = bool(schemas[name].get("required"))


def _add_common(path: str, method: str, operation: Json) -> None:
    versioned = path.startswith("/v1/")
    if versioned:
        operation["security"] = [{"bearer": []}]
    codes = {code: status_of(code) for code in (Invalid.code, PinnerError.code, *operation.get(_CODES, ()))}
    if versioned:
        codes[StoreUnavailable.code] = status_of(StoreUnavailable.code)
    codes |= {HTTP_CODES[status]: status for status in _statuses(versioned, method)}
    responses = operation["responses"]
    for status in sorted(set(codes.values())):
        names = sorted(code for code in codes if codes[code] == status)
        responses[str(status)] = {"description": f"code: {', '.join(names)}", "content": _ERROR}
    for answer in responses.values():
        answer.setdefault("headers", {})[REQUEST_ID] = {"$ref": "#/components/headers/RequestId"}


def _statuses(versioned: bool, method: str) -> Iterator[int]:
    """The statuses of requests that are refused before they reach the service."""
    yield from (403, 411, 413)
    if method in ("post", "put"):
        yield 415
    if versioned:
        yield 401
