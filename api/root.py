"""The paths that belong to no version: the list of versions and the health check."""

from apiflask import APIBlueprint
from pydantic import RootModel

from pinner import __version__
from pinner.api.schemas import Health, Version, Versions

bp = APIBlueprint("root", __name__, tag="Server")


@bp.get("/")
@bp.output(RootModel[Versions])
def versions() -> Versions:
    """List the versions of this API that the server supports."""
    return Versions("pinner", __version__, (Version("v1", "CURRENT", "/v1"),))


@bp.get("/healthcheck")
@bp.output(RootModel[Health])
def healthcheck() -> Health:
    """Check that the server answers. This asks neither a host nor the database."""
    return Health("ok")
