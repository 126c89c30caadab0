"""What a view says about itself beyond its schemas: errors, links, headers."""

from typing import Any

from pinner.model.errors import Busy, HostUnreachable, PinnerError

Json = dict[str, Any]

CODES = "x-error-codes"
HEADERS = "x-headers"
TEXT: Json = {"type": "string"}
IF_MATCH = "IfMatch"
IF_NONE_MATCH = "IfNoneMatch"
IF_CHANGED = "IfChanged"
IDEMPOTENCY_KEY = "IdempotencyKey"
CONDITIONAL: Json = {HEADERS: [IF_MATCH, IF_NONE_MATCH]}
"""An operation that heeds If-Match and If-None-Match, for APIFlask's ``doc(extensions=)``."""


def may_raise(*kinds: type[PinnerError]) -> Json:
    """An operation's errors beside those of all, for ``doc(extensions=)``. An unreachable agent may also be busy."""
    codes = {kind.code for kind in kinds} | ({Busy.code} if HostUnreachable in kinds else set())
    return {CODES: sorted(codes)}


def media_type(media: str, schema: Json) -> dict[int | str, dict[str, str | dict[str, Json]]]:
    return {200: {"description": "Successful response", "content": {media: {"schema": schema}}}}


NOT_MODIFIED: dict[int | str, dict[str, str | dict[str, Json]]] = {
    304: {"description": "The client has this object already."}
}

NOT_READY: dict[int | str, dict[str, str | dict[str, Json]]] = {
    503: {
        "description": "A check fails",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Ready"}}},
    }
}


def links(parameter: str, pointer: str, *operations: str) -> Json:
    """These ``operations`` take ``parameter`` from the JSON pointer ``pointer`` of this answer."""
    parameters = {parameter: f"$response.body#{pointer}"}
    return {operation: {"operationId": operation, "parameters": parameters} for operation in operations}
