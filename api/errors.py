"""Errors as REST answers. Only this module knows HTTP statuses."""

import logging
from collections.abc import Mapping
from typing import Any

import pydantic_core
from apiflask import APIFlask
from flask import Response, g, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.exceptions import NotFound as NoSuchPath

from pinner.model.errors import NotFound, PinnerError, document, shown

LOG = logging.getLogger(__name__)

STATUS: Mapping[str, int] = {
    "invalid": 400,
    "not_found": 404,
    "no_fit": 409,
    "stale_plan": 409,
    "plan_blocked": 409,
    "plan_worse": 409,
    "host_busy": 409,
    "run_conflict": 409,
    "policy_conflict": 409,
    "in_progress": 409,
    "precondition_failed": 412,
    "key_reused": 422,
    "nova_conflict": 409,
    "refused": 409,
    # Not 404: the guest or process is gone, but the resource of the URL exists. The plan conflicts with the host.
    "gone": 409,
    # 502: the host behind this server refused the change, and the caller cannot correct that.
    "apply_failed": 502,
    "not_permitted": 502,
    # 503: the host or the database does not answer now; the caller can try again.
    "host_unreachable": 503,
    "busy": 503,
    "overloaded": 503,
    "store_unavailable": 503,
    "internal": 500,
}

HTTP_CODES: Mapping[int, str] = {
    400: "invalid",
    401: "unauthorized",
    403: "forbidden",
    405: "method_not_allowed",
    411: "length_required",
    413: "too_large",
    408: "request_timeout",
    415: "unsupported_media_type",
    406: "not_acceptable",
    429: "too_many_requests",
    431: "head_too_large",
    503: "too_many_streams",
}
"""The code of a request that is refused before it reaches the service, by HTTP status."""

RETRY_STATUSES = (409, 429, 503)

RETRY_AFTER: Mapping[str, int] = {"host_unreachable": 10, "host_busy": 5, "busy": 5, "store_unavailable": 5}
"""Seconds after which a request with this error may succeed. Other conflicts wait for somebody, and get one second."""

INTERNAL_ERROR = "pinner failed; the cause is in its log under this request_id"


def register(app: APIFlask) -> None:
    app.register_error_handler(PinnerError, _pinner_error)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _unexpected_error)


def status_of(code: str) -> int:
    return STATUS.get(code, 500)


def error_document(code: str, message: str, details: Mapping[str, Any], request_id: str) -> bytes:
    """A value that JSON lacks (NaN, bytes, an object) is written as text."""
    error = {"code": code, "message": message, "details": dict(details), "request_id": request_id}
    return pydantic_core.to_json({"error": error}, inf_nan_mode="strings", fallback=repr)


def _answer(status: int, code: str, message: str, details: Mapping[str, Any]) -> Response:
    g.error_message = message
    answer = Response(error_document(code, message, details, g.request_id), status, mimetype="application/json")
    if status in RETRY_STATUSES:
        answer.headers["Retry-After"] = str(RETRY_AFTER.get(code, 1))
    return answer


def _pinner_error(error: PinnerError) -> Response:
    status = status_of(error.code)
    if status >= 500:
        LOG.error("%s: %s", g.request_id, error)
    answer = _answer(status, **document(error))
    if (seconds := error.details.get("retry_after")) is not None:
        answer.headers["Retry-After"] = str(seconds)
    return answer


def _http_error(error: HTTPException) -> Response:
    if isinstance(error, NoSuchPath):
        return _pinner_error(NotFound("path", request.path))
    status = error.code or 500
    details: dict[str, Any] = {}
    if isinstance(error, MethodNotAllowed):
        details = {"method": request.method, "allowed": sorted(error.valid_methods or ())}
    answer = _answer(status, HTTP_CODES.get(status, "internal"), shown(error.description or error.name), details)
    headers = [(name, value) for name, value in error.get_headers() if name.lower() != "content-type"]
    answer.headers.update(headers)
    return answer


def _unexpected_error(_error: Exception) -> Response:
    LOG.exception("%s: %s %r failed", g.request_id, request.method, request.path)
    return _answer(500, "internal", INTERNAL_ERROR, {})
