"""Who may come in, checked before any view: size, token or loopback name, origin, stray parameters.

Without tokens only this machine can reach the server. A web page in somebody's browser on this machine can too, so
the Host header must be a loopback name (or a name that the page's owner points at 127.0.0.1 would do), a POST or PUT
must not come from another site, and a body must be JSON, which no form can send.
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

from pinner.api.context import interface
from pinner.model.errors import Invalid

LOG = logging.getLogger(__name__)

REQUEST_ID = "X-Openstack-Request-Id"
PUBLIC = ("root.versions", "root.healthcheck", "openapi.spec")
"""Endpoints that need no token."""
LOCAL_ACTOR = "local"


def check() -> None:
    """Refuse what must not reach a view; else note who asks."""
    g.request_id = f"req-{uuid.uuid4()}"
    _check_size()
    tokens = interface().tokens
    if tokens is None:
        _check_local()
        g.actor = LOCAL_ACTOR
    elif request.endpoint not in PUBLIC:
        g.actor = _actor(tokens)
    _check_parameters()


def mark(response: Response) -> Response:
    """Give every answer its request id, forbid a browser to guess its type, and log it."""
    response.headers[REQUEST_ID] = g.request_id
    response.headers["X-Content-Type-Options"] = "nosniff"
    who = g.get("actor", "nobody")
    LOG.info(
        "%s: %s %s %r from %s: %s",
        g.request_id,
        who,
        request.method,
        request.path,
        request.remote_addr,
        response.status_code,
    )
    return response


def is_loopback(host: str) -> bool:
    """Whether a name, address or Host header (with or without a port) means this machine only."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ip_address(name).is_loopback
    except ValueError:
        return False


def _check_size() -> None:
    """Before all else, and by what the head says: the server reads what is left of a body into memory unless the
    answer is 413, and a chunk of a body in chunks whole."""
    if "Transfer-Encoding" in request.headers:
        raise LengthRequired("Content-Length: is needed; a body in chunks is not read")
    limit = current_app.config["MAX_CONTENT_LENGTH"]
    if (request.content_length or 0) > limit:
        raise RequestEntityTooLarge(f"the body is larger than {limit} bytes")


def _check_local() -> None:
    host = request.headers.get("Host", "")
    if not is_loopback(host):
        raise MisdirectedRequest(f"Host: {host!r} is no loopback name; without tokens pinner answers to those only")
    origin = request.headers.get("Origin")
    if request.method in ("POST", "PUT") and origin is not None and not _same_site(origin, host):
        raise Forbidden(f"Origin: {origin!r} is another site than this server")


def _same_site(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False


def _actor(tokens: Mapping[str, str]) -> str:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    actor = None
    # All of them are compared, so that the time taken tells nothing of which was near.
    for token, name in tokens.items():
        if hmac.compare_digest(token.encode(), given.strip().encode()):
            actor = name
    if actor is None or scheme.lower() != "bearer":
        raise Unauthorized(
            "Authorization: a known bearer token is needed",
            www_authenticate=WWWAuthenticate("bearer", {"realm": "pinner"}),
        )
    return actor


def _check_parameters() -> None:
    """A view that declares no query parameters takes none (those that declare some check them themselves)."""
    view = current_app.view_functions.get(request.endpoint or "")
    if view is not None and not getattr(view, "_spec", {}).get("args"):
        for name, value in request.args.items():
            raise Invalid(name, value, "no query parameter is known here")
