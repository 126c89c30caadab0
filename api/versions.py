"""The versions of the API: what the server speaks, and what a request asks for."""

from flask import Response, request
from werkzeug.exceptions import NotAcceptable

VERSION = "1.0"
"""The newest version. Fields that are only added raise the number after the point."""
VERSION_HEADER = "OpenStack-API-Version"
_SERVICE = "pinner"


def check_version() -> None:
    """Refuse a request that asks for a version that this server does not speak (406)."""
    for asked in request.headers.get(VERSION_HEADER, "").split(","):
        service, _, version = asked.strip().partition(" ")
        if service.lower() == _SERVICE and version.strip() not in (VERSION, "latest"):
            raise NotAcceptable(
                f"{VERSION_HEADER}: {asked.strip()!r} is not served; send {_SERVICE} {VERSION} or latest"
            )


def name_version(response: Response) -> Response:
    """Add the version of the answer."""
    response.headers[VERSION_HEADER] = f"{_SERVICE} {VERSION}"
    response.vary.add(VERSION_HEADER)
    return response
