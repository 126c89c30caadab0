"""What a view needs of the application around it."""

from collections.abc import Mapping
from dataclasses import dataclass

from flask import current_app, g, request

from pinner.api.streams import Streams
from pinner.model.audit import Caller
from pinner.service.protocol import Service


@dataclass(frozen=True, slots=True)
class Interface:
    """The use cases behind an application, who may come in (None: anybody on this machine), and who listens."""

    pinner: Service
    tokens: Mapping[str, str] | None
    """Bearer token to the name of its holder."""
    streams: Streams


def interface() -> Interface:
    """The current application's."""
    found: Interface = current_app.extensions["pinner"]
    return found


def pinner() -> Service:
    """The use cases behind the current application."""
    return interface().pinner


def caller() -> Caller:
    """Who sent the current request."""
    return Caller(g.actor, request.remote_addr or "unknown", g.request_id)
