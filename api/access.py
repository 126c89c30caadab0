"""Checks of every request before its view: size, token or loopback name, origin, unknown query parameters.

Without tokens only this machine can reach the server. A web page in a browser on this machine can reach it too.
Therefore the Host header must be a loopback name, because the page's owner can make another name resolve to 127.0.0.1.
A POST or PUT must not come from another site. A body must be JSON, which no HTML form can send.
"""

import hmac
import logging
import uuid
from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from flask import Response, current_app, g, request
from werkzeug.datastructures import WWWAuthenticate
from werkzeug.exceptions import Forbidden, LengthRequired, MisdirectedRequest, RequestEntityTooLarge, Unauthorized

from pinner.api.context import app_state
from pinner.model.errors import Invalid

LOG = logging.getLogger(__name__)

REQUEST_ID = "X-Openstack-Request-Id"
PUBLIC = ("root.versions", "root.healthcheck", "openapi.spec")
"""Endpoints that need no token."""
LOCAL_ACTOR = "local"
"""The actor of every request to a server without tokens."""


def check_request() -> None:
    """Give the request an id, refuse it where it is not allowed, and set its actor."""
    g.request_id = f"req-{uuid.uuid4()}"
    _check_size()
    tokens = app_state().tokens
    if tokens is None:
        _check_local()
        g.actor = LOCAL_ACTOR
    elif request.endpoint not in PUBLIC:
        g.actor = _actor(tokens)
    _check_parameters()


def finish_response(response: Response) -> Response:
    """Add the request id and the header that stops a browser from guessing the content type; log the answer."""
    response.headers[REQUEST_ID] = g.request_id
    response.headers["X-Content-Type-Options"] = "nosniff"
    LOG.info(
        "%s: %s %s %r from %s: %s",
        g.request_id,
        g.get("actor", "unauthenticated"),
        request.method,
        request.path,
        request.remote_addr,
        response.status_code,
    )
    return response


def is_loopback(host: str) -> bool:
    """Whether a name, an address or a Host header (with or without a port) means this machine only."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def _check_size() -> None:
    """Refuse a body that is too large, or whose length is unknown.

    This is the first check and uses the headers alone: unless the answer is 413, the server reads the rest of the body
    into memory, and a chunked body as a whole.
    """
    if "Transfer-Encoding" in request.headers:
        encoding = request.headers["Transfer-Encoding"]
        raise LengthRequired(f"Transfer-Encoding: {encoding!r} is not accepted; send the body with a Content-Length")
    limit = current_app.config["MAX_CONTENT_LENGTH"]
    if (request.content_length or 0) > limit:
        raise RequestEntityTooLarge(
            f"Content-Length: {request.content_length} is too large: the limit is {limit} bytes"
        )


def _check_local() -> None:
    host = request.headers.get("Host", "")
    if not is_loopback(host):
        raise MisdirectedRequest(
            f"Host: {host!r} is not a loopback name; a server without tokens accepts only names such as localhost"
        )
    origin = request.headers.get("Origin")
    if request.method in ("POST", "PUT") and origin is not None and not _same_site(origin, host):
        raise Forbidden(f"Origin: {origin!r} is another site; only pages of {host!r} may send this request")


def _same_site(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False


def _actor(tokens: Mapping[str, str]) -> str:
    """The actor of the request's bearer token. Raises Unauthorized."""
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    actor = None
    # Every token is compared, so that the response time does not show how much of a token was right.
    for token, name in tokens.items():
        if hmac.compare_digest(token.encode(), given.strip().encode()):
            actor = name
    if actor is None or scheme.lower() != "bearer":
        raise Unauthorized(
            "Authorization: this server needs a known bearer token",
            www_authenticate=WWWAuthenticate("bearer", {"realm": "pinner"}),
        )
    return actor


def _check_parameters() -> None:
    """Refuse every query parameter where the view declares none; other views check their own."""
    view = current_app.view_functions.get(request.endpoint or "")
    if view is not None and not getattr(view, "_spec", {}).get("args"):
        for name, value in request.args.items():
            raise Invalid(name, value, "this path takes no query parameter")
