"""Puts the REST application together."""

from collections.abc import Callable
from datetime import UTC, datetime

from apiflask import APIFlask

from pinner import __version__
from pinner.api import errors, idempotency, negotiation, root
from pinner.api.access import access, policies
from pinner.api.access.context import AccessControl, AppState
from pinner.api.description import openapi
from pinner.api.http.reader import MAX_BODY_BYTES
from pinner.api.streams import Streams
from pinner.api.v1 import NOUNS
from pinner.api.validation import WrittenJson
from pinner.service.protocol import Service
from pinner.service.upkeep.monitor import Monitor
from pinner.store.idempotency import IdempotencyKeys


def create_app(
    pinner: Service,
    *,
    control: AccessControl,
    max_body_bytes: int = MAX_BODY_BYTES,
    idempotency_keys: IdempotencyKeys | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    monitor: Monitor | None = None,
) -> APIFlask:
    """Without ``idempotency_keys`` an Idempotency-Key is refused. Without ``monitor`` the server is always ready, and
    has no metrics. Raises LookupError if a view has no policy rule."""
    # static_folder=None: no static files. Flask accepts None, but APIFlask's annotation does not allow it.
    app = APIFlask("pinner", title="pinner", version=__version__, docs_path=None, static_folder=None)  # type: ignore[arg-type]
    app.json = WrittenJson(app)
    app.config["MAX_CONTENT_LENGTH"] = max_body_bytes
    # Flask would answer OPTIONS itself, and no policy rule decides on that.
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    # werkzeug would answer /v1//hosts with a redirection in HTML, to the Host that the request names.
    app.url_map.merge_slashes = False
    for check in (access.check_request, negotiation.check_version, access.check_path, idempotency.replay):
        app.before_request(check)
    # Flask calls them in the reverse order.
    for finish in (negotiation.compress, access.finish_response, negotiation.name_version, idempotency.remember):
        app.after_request(finish)
    errors.register(app)
    openapi.configure(app)
    app.register_blueprint(root.bp)
    for noun in NOUNS:
        app.register_blueprint(noun, url_prefix="/v1")
    rules = policies.rules_of(app.url_map, access.PUBLIC)
    app.extensions["pinner"] = AppState(pinner, control, rules, Streams(), idempotency_keys, now, monitor)
    return app
