"""The ids and names in a request's path, and the request's own id."""

import re
import uuid

from flask import request

from pinner.model.errors import NotFound

MAX_LENGTH = 255
"""Characters of the longest name or id that pinner stores."""

_REQUEST_ID = re.compile("req-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def request_id(given: str | None) -> str:
    """The id that the caller gave its request, so that it finds the request in pinner's log and audit trail; a new
    one where it gave none of OpenStack's form (req- and a UUID)."""
    return given if given and _REQUEST_ID.fullmatch(given) else f"req-{uuid.uuid4()}"


def check_path() -> None:
    """Raises NotFound for an id or name that no object can have: too long, or with NUL, which databases refuse."""
    for kind, name in (request.view_args or {}).items():
        if len(name) > MAX_LENGTH or "\0" in name:
            raise NotFound(kind, name[:80])
