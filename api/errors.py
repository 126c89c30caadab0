"""Errors as REST answers: the only place that knows HTTP statuses.

Every error, from whatever layer, leaves as {"error": {"code", "message", "details", "request_id"}}.
"""

import logging
from collections.abc import Mapping
from typing import Any

import pydantic_core
from apiflask import APIFlask
from flask import Response, g, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.exceptions import NotFound as NoSuchPath

from pinner.model.errors import NotFound, PinnerError, document

LOG = logging.getLogger(__name__)

STATUS: Mapping[str, int] = {
    "invalid": 400,
    "not_found": 404,
    "no_fit": 409,
    "stale_plan": 409,
    "plan_blocked": 409,
    "host_busy": 409,
    "run_conflict": 409,
    "policy_conflict": 409,
    "nova_conflict": 409,
    # The guest or process went, not the resource that the URL names: so the plan is in conflict with the host.
    "gone": 409,
    # 502: the host behind this server answered and would not; the caller cannot mend that.
    "apply_failed": 502,
    "not_permitted": 502,
    # 503: nothing answers; to be tried again.
    "host_unreachable": 503,
    "busy": 503,
    "store_unavailable": 503,
    "internal": 500,
}
"""Public error code to status."""

HTTP_CODES: Mapping[int, str] = {
    400: "invalid",
    401: "unauthorized",
    403: "forbidden",
    405: "method_not_allowed",
    411: "length_required",
    413: "too_large",
    415: "unsupported_media_type",
    421: "misdirected",
    503: "too_many_streams",
}
"""Status to public code, for what goes wrong before a use case is reached."""


UNFORESEEN = "pinner failed; its log says why under this request_id"


def register(app: APIFlask) -> None:
    """Answer every exception of the application in the one shape."""
    app.register_error_handler(PinnerError, _refused)
    app.register_error_handler(HTTPException, _misused)
    app.register_error_handler(Exception, _unexpected)


def status_of(code: str) -> int:
    """The status of a public error code."""
    return STATUS.get(code, 500)


def write(code: str, message: str, details: Mapping[str, Any], request_id: str) -> bytes:
    """The error document. What came in may be no JSON value (NaN) or no value at all: it is shown, not sent on."""
    error = {"code": code, "message": message, "details": dict(details), "request_id": request_id}
    return pydantic_core.to_json({"error": error}, inf_nan_mode="strings", fallback=repr)


def _answer(status: int, code: str, message: str, details: Mapping[str, Any]) -> Response:
    return Response(write(code, message, details, g.request_id), status, mimetype="application/json")


def _refused(error: PinnerError) -> Response:
    status = status_of(error.code)
    if status >= 500:
        LOG.error("%s: %s", g.request_id, error)
    return _answer(status, **document(error))


def _misused(error: HTTPException) -> Response:
    if isinstance(error, NoSuchPath):
        return _refused(NotFound("path", request.path))
    status = error.code or 500
    details: dict[str, Any] = {}
    if isinstance(error, MethodNotAllowed):
        details = {"method": request.method, "allowed": sorted(error.valid_methods or ())}
    answer = _answer(status, HTTP_CODES.get(status, "internal"), error.description or error.name, details)
    kept = [(name, value) for name, value in error.get_headers() if name.lower() != "content-type"]
    answer.headers.extend(kept)
    return answer


def _unexpected(_error: Exception) -> Response:
    LOG.exception("%s: %s %r failed", g.request_id, request.method, request.path)
    return _answer(500, "internal", UNFORESEEN, {})
