"""Checks of every request before its view.

A web page in a browser on this machine can neither open the Unix socket nor read a token, but the browser adds a TLS
client certificate: so the Origin of a request that changes something must be the Host. Without a CORS header, a page
cannot read a GET's answer; a name that its owner makes resolve to this machine does not fit the server's certificate;
and no HTML form can send the JSON of a body."""

import logging
import re
import uuid
from urllib.parse import urlsplit

from flask import Response, current_app, g, request
from werkzeug.exceptions import Forbidden, LengthRequired, MethodNotAllowed, RequestEntityTooLarge

from pinner.api.access.context import app_state, caller, identity
from pinner.api.access.peer import ENVIRON, Peer, TcpPeer, throttle_key
from pinner.api.access.refusals import MAX_TEXT
from pinner.model.errors import Invalid, NotFound, shown

LOG = logging.getLogger(__name__)

REQUEST_ID = "X-Openstack-Request-Id"
PUBLIC = frozenset({"root.versions", "root.version", "root.healthcheck", "root.live", "root.ready", "openapi.spec"})
READING = ("GET", "HEAD")
REFUSALS = (401, 403, 429)
UNKNOWN_PEER = "unknown"
"""Another WSGI server may not name a peer, such as that of a Unix socket."""


def check_request() -> None:
    g.request_id = request_id(request.headers.get(REQUEST_ID))
    access = app_state().access
    g.identity = access.credentials.anonymous(_peer(), request.headers)
    _check_size()
    if not _is_public():
        g.identity = access.credentials.identify(_peer(), request.headers)
        _check_origin()
        if request.endpoint is not None:
            host = (request.view_args or {}).get("host", "")
            access.authorizer.require(app_state().rules[request.endpoint], identity(), host)
    _check_parameters()


def _is_public() -> bool:
    """A method that a public path lacks is answered with 405."""
    if isinstance(refused := request.routing_exception, MethodNotAllowed) and "GET" in (refused.valid_methods or ()):
        adapter = current_app.create_url_adapter(request)
        assert adapter is not None
        return adapter.match(method="GET")[0] in PUBLIC
    return request.endpoint in PUBLIC


def finish_response(response: Response) -> Response:
    response.headers[REQUEST_ID] = g.request_id
    response.headers["X-Content-Type-Options"] = "nosniff"
    if response.status_code in REFUSALS:
        _audit_refusal(response)
    LOG.info(
        "%s: %s %s %r from %s: %s",
        g.request_id,
        identity().actor,
        request.method,
        shown(request.path),
        identity().origin,
        response.status_code,
    )
    return response


def _peer() -> Peer:
    """Another WSGI server names at most the address of a TCP client."""
    peer: Peer | None = request.environ.get(ENVIRON)
    return peer or TcpPeer(request.environ.get("REMOTE_ADDR") or UNKNOWN_PEER)


def _audit_refusal(response: Response) -> None:
    sender = caller()
    app_state().access.refusals.record(
        sender,
        throttle_key(sender.origin),
        f"{request.method[:MAX_TEXT]} {request.path[:MAX_TEXT]}",
        f"{response.status_code}: {g.get('error_message', response.status)}",
    )


def _check_size() -> None:
    """Another WSGI server would read the body into memory, so this comes first (the embedded one has refused it)."""
    if "Transfer-Encoding" in request.headers:
        encoding = request.headers["Transfer-Encoding"]
        raise LengthRequired(f"Transfer-Encoding: {encoding!r} is not accepted; send the body with a Content-Length")
    limit = current_app.config["MAX_CONTENT_LENGTH"]
    if (request.content_length or 0) > limit:
        raise RequestEntityTooLarge(
            f"Content-Length: {request.content_length} is too large: the limit is {limit} bytes"
        )


def _check_origin() -> None:
    origin, host = request.headers.get("Origin"), request.headers.get("Host", "")
    if request.method not in READING and origin is not None and not _is_same_site(origin, host):
        raise Forbidden(f"Origin: {origin!r} is another site; only pages of {host!r} may send this request")


def _is_same_site(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False


def _check_parameters() -> None:
    view = current_app.view_functions.get(request.endpoint or "")
    if view is not None and not getattr(view, "_spec", {}).get("args"):
        for name, value in request.args.items():
            raise Invalid(name, value, "this path takes no query parameter")


MAX_LENGTH = 255
"""Characters of a name or id."""

_REQUEST_ID = re.compile("req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def request_id(given: str | None) -> str:
    """The caller's, if it has OpenStack's form (req- and a UUID); else a new one."""
    return given if given and _REQUEST_ID.fullmatch(given) else f"req-{uuid.uuid4()}"


def check_path() -> None:
    """Raises NotFound for a name that is too long, or has NUL, which databases refuse."""
    for kind, name in (request.view_args or {}).items():
        if len(name) > MAX_LENGTH or "\0" in name:
            raise NotFound(kind, name[:80])
