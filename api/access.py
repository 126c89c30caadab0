"""Checks of every request before its view: size, the right of its caller, origin, unknown query parameters.

The mode of the Unix socket decides who may connect to it, so each of its callers is an administrator, and the kernel
names the caller. A call over TCP needs a bearer token, also from this machine: every local user can call loopback, and
so can a web page in a browser.
"""

import hmac
import logging
import pwd
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from flask import Response, current_app, g, request
from werkzeug.datastructures import WWWAuthenticate
from werkzeug.exceptions import Forbidden, LengthRequired, RequestEntityTooLarge, Unauthorized

from pinner.api.context import app_state, origin
from pinner.api.identifiers import request_id
from pinner.api.peer import ENVIRON, TcpPeer, UnixPeer
from pinner.model.errors import Invalid

LOG = logging.getLogger(__name__)

REQUEST_ID = "X-Openstack-Request-Id"
ACTOR = "X-Pinner-Actor"
"""The person for whom root calls over the Unix socket, percent-encoded: the user who called sudo."""
MAX_ACTOR = 255
"""Characters."""
PUBLIC = ("root.versions", "root.version", "root.healthcheck", "openapi.spec")
"""Endpoints that need no token."""


def check_request() -> None:
    """Give the request an id, refuse it where it is not allowed, and set its actor."""
    g.request_id = request_id(request.headers.get(REQUEST_ID))
    _check_size()
    match request.environ.get(ENVIRON, TcpPeer(request.remote_addr or "")):
        case UnixPeer(uid=uid):
            g.actor = _local_actor(uid)
        case _ if request.endpoint not in PUBLIC:
            g.actor = _actor(app_state().tokens)
    _check_origin()
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
        origin(),
        response.status_code,
    )
    return response


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


def _check_origin() -> None:
    """Refuse a change that a page of another site sends."""
    sender, host = request.headers.get("Origin"), request.headers.get("Host", "")
    if request.method in ("POST", "PUT", "DELETE") and sender is not None and not _same_site(sender, host):
        raise Forbidden(f"Origin: {sender!r} is another site; only pages of {host!r} may send this request")


def _same_site(sender: str, host: str) -> bool:
    try:
        return urlsplit(sender).netloc == host
    except ValueError:
        return False


def _local_actor(uid: int) -> str:
    """The name of the user at the other end of the Unix socket; root may name another actor. Raises Forbidden."""
    named = request.headers.get(ACTOR)
    if named is None:
        try:
            return pwd.getpwuid(uid).pw_name
        except KeyError:
            return f"uid {uid}"
    if uid != 0:
        raise Forbidden(f"{ACTOR}: only root may name another actor, not the user with id {uid}")
    actor = unquote(named)
    if not actor.isprintable() or not 0 < len(actor) <= MAX_ACTOR:
        raise Invalid(ACTOR, named, f"a user's name of 1 to {MAX_ACTOR} printable characters, percent-encoded")
    return actor


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
