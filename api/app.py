"""Puts the REST application together, and answers the paths about the server itself: versions, health and metrics."""

from collections.abc import Callable
from datetime import UTC, datetime

from apiflask import APIBlueprint, APIFlask
from flask import Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import RootModel
from werkzeug.exceptions import Forbidden

from pinner import __version__
from pinner.api import errors, idempotency, negotiation
from pinner.api.access import access, policies
from pinner.api.access.context import AccessControl, AppState, app_state, identity
from pinner.api.description import openapi
from pinner.api.description.operations import NOT_READY, TEXT, media_type
from pinner.api.http.reader import MAX_BODY_BYTES
from pinner.api.negotiation import VERSION
from pinner.api.schemas.answers import Health, PublicCheck, Ready, Version, Versions
from pinner.api.streams import Streams
from pinner.api.v1 import NOUNS
from pinner.api.validation import WrittenJson
from pinner.model.health import Readiness, readiness
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
    app.register_blueprint(bp)
    for noun in NOUNS:
        app.register_blueprint(noun, url_prefix="/v1")
    rules = policies.rules_of(app.url_map, access.PUBLIC)
    app.extensions["pinner"] = AppState(pinner, control, rules, Streams(), idempotency_keys, now, monitor)
    return app


LISTS = ("audit", "hosts", "plans", "runs", "strategies")

V1 = Version("v1", "CURRENT", "/v1", VERSION, "/openapi.json", tuple(f"/v1/{noun}" for noun in LISTS))

RETRY_SECONDS = 5
"""The interval of the server's health checks."""

bp = APIBlueprint("root", __name__, tag="Server")


@bp.get("/")
@bp.output(RootModel[Versions])
@bp.doc(operation_id="list_versions")
def versions() -> Versions:
    """List the versions of this API that the server supports."""
    return Versions("pinner", __version__, (V1,))


@bp.get("/v1")
@bp.output(RootModel[Version])
@bp.doc(operation_id="show_version")
def version() -> Version:
    """Show version 1 of this API, with the paths of its lists."""
    return V1


@bp.get("/healthcheck")
@bp.output(RootModel[Health])
@bp.doc(operation_id="check_health")
def healthcheck() -> Health:
    """Check that the server answers. This asks neither a host nor the database."""
    return Health("ok")


@bp.get("/healthcheck/live")
@bp.output(RootModel[Health])
@bp.doc(operation_id="check_live")
def live() -> Health:
    """Check that the server answers, like `/healthcheck`."""
    return Health("ok")


@bp.get("/healthcheck/ready")
@bp.output(RootModel[Ready])
@bp.doc(operation_id="check_ready", responses=NOT_READY)
def ready() -> tuple[Ready, int, dict[str, str]]:
    """Check that the server can do all of its work: the agent, libvirt, the database and its own threads.

    The answer is at most some seconds old, and costs nothing. `/v1/health` says why a check fails."""
    state = _readiness()
    answer = Ready(state.status, tuple(PublicCheck(check.name, check.ok) for check in state.checks))
    return (answer, 200, {}) if state.status == "ready" else (answer, 503, {"Retry-After": str(RETRY_SECONDS)})


@bp.get("/v1/health")
@bp.output(RootModel[Readiness])
@bp.doc(operation_id="show_health")
def health() -> Readiness:
    """Show whether the server can do all of its work, and why not."""
    _require_all_hosts()
    return _readiness()


@bp.get("/metrics")
@bp.doc(operation_id="show_metrics", responses=media_type("text/plain", TEXT))
def metrics() -> Response:
    """Show the metrics of the server in Prometheus' text format."""
    _require_all_hosts()
    monitor = app_state().monitor
    return Response(monitor.metrics.text() if monitor else b"", content_type=CONTENT_TYPE_PLAIN_0_0_4)


def _readiness() -> Readiness:
    monitor = app_state().monitor
    return monitor.readiness() if monitor else readiness(())


def _require_all_hosts() -> None:
    if identity().host and app_state().pinner.hosts() != (identity().host,):
        raise Forbidden(f"this token may act on host {identity().host!r} only; this shows every host of the server")
