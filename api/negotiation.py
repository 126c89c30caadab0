"""The version of the API, and the compression of an answer (RFC 9110, section 12). Compression can reveal a secret
beside text that somebody else chooses (BREACH): no answer holds a secret, and no browser adds credentials by itself."""

import gzip

from flask import Response, request
from werkzeug.exceptions import NotAcceptable

SMALLEST = 1024
"""Bytes; a shorter answer stays as it is."""
_LEVEL = 5
"""Up to 9; higher levels take twice the time for a few per cent."""


def compress(response: Response) -> Response:
    """Never a stream."""
    if response.is_streamed or response.status_code in (204, 304) or "Content-Encoding" in response.headers:
        return response
    if (response.calculate_content_length() or 0) > SMALLEST:
        response.vary.add("Accept-Encoding")
        if request.accept_encodings.quality("gzip") > 0:
            # The time is left out, so that equal answers have equal bytes.
            response.set_data(gzip.compress(response.get_data(), _LEVEL, mtime=0))
            response.headers["Content-Encoding"] = "gzip"
    return response


VERSION = "1.0"
"""The newest version. Added fields raise the number after the point."""
VERSION_HEADER = "OpenStack-API-Version"
_SERVICE = "pinner"


def check_version() -> None:
    for wanted in request.headers.get(VERSION_HEADER, "").split(","):
        service, _, version = wanted.strip().partition(" ")
        if service.lower() == _SERVICE and version.strip() not in (VERSION, "latest"):
            raise NotAcceptable(
                f"{VERSION_HEADER}: {wanted.strip()!r} is not served; send {_SERVICE} {VERSION} or latest"
            )


def name_version(response: Response) -> Response:
    response.headers[VERSION_HEADER] = f"{_SERVICE} {VERSION}"
    response.vary.add(VERSION_HEADER)
    return response
