"""The paths that belong to no version: the list of versions and the health check."""

from apiflask import APIBlueprint
from pydantic import RootModel

from pinner import __version__
from pinner.api.schemas.answers import Health, Version, Versions
from pinner.api.versions import VERSION

LISTS = ("audit", "hosts", "plans", "runs", "strategies")

V1 = Version("v1", "CURRENT", "/v1", VERSION, "/openapi.json", tuple(f"/v1/{noun}" for noun in LISTS))

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
