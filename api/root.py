"""The paths that tell about the server itself: its versions, health and metrics."""

from apiflask import APIBlueprint
from flask import Response
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from pydantic import RootModel
from werkzeug.exceptions import Forbidden

from pinner import __version__
from pinner.api.access.context import app_state, identity
from pinner.api.description.operations import NOT_READY, TEXT, media_type
from pinner.api.negotiation import VERSION
from pinner.api.schemas.answers import Health, PublicCheck, Ready, Version, Versions
from pinner.model.health import Readiness, readiness

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

    The answer is at most some seconds old, and costs nothing. `/v1/health` says why a check fails.
    """
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
    """Raises Forbidden for a token of one host where the server has other hosts, too."""
    if identity().host and app_state().pinner.hosts() != (identity().host,):
        raise Forbidden(f"this token may act on host {identity().host!r} only; this shows every host of the server")
