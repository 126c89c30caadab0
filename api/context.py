"""The application's state and the caller of the current request, for the views."""

from collections.abc import Mapping
from dataclasses import dataclass

from flask import current_app, g, request

from pinner.api.streams import Streams
from pinner.model.audit import Caller
from pinner.service.protocol import Service


@dataclass(frozen=True, slots=True)
class AppState:
    """The objects that an application shares between its requests: the service, the tokens, the open streams."""

    pinner: Service
    tokens: Mapping[str, str] | None
    """Actor by bearer token; None: every caller on this machine is accepted."""
    streams: Streams


def app_state() -> AppState:
    """The state of the current application."""
    state: AppState = current_app.extensions["pinner"]
    return state


def pinner() -> Service:
    """The service of the current application."""
    return app_state().pinner


def caller() -> Caller:
    """The caller of the current request, for the audit trail."""
    return Caller(g.actor, request.remote_addr or "unknown", g.request_id)
