"""What stands outside any version: the versions themselves and the health check."""

from apiflask import APIBlueprint
from pydantic import RootModel

from pinner import __version__
from pinner.api.schemas import Health, Version, Versions

bp = APIBlueprint("root", __name__, tag="Server")


@bp.get("/")
@bp.output(RootModel[Versions])
def versions() -> Versions:
    """The versions of this API that the server speaks."""
    return Versions("pinner", __version__, (Version("v1", "CURRENT", "/v1"),))


@bp.get("/healthcheck")
@bp.output(RootModel[Health])
def healthcheck() -> Health:
    """Whether the server answers; it asks neither a host nor the database."""
    return Health("ok")
