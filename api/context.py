"""The application's state and the caller of the current request, for the views."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

from flask import current_app, g, request

from pinner.api.peer import ENVIRON, UnixPeer
from pinner.api.streams import Streams
from pinner.model.audit import Caller
from pinner.service.protocol import Service
from pinner.store.idempotency import IdempotencyKeys


@dataclass(frozen=True, slots=True)
class AppState:
    """The objects that an application shares between its requests: the service, the tokens, the open streams."""

    pinner: Service
    tokens: Mapping[str, str]
    """Actor by bearer token."""
    streams: Streams
    idempotency_keys: IdempotencyKeys | None
    """None: the server stores no answers."""
    now: Callable[[], datetime]


def app_state() -> AppState:
    """The state of the current application."""
    state: AppState = current_app.extensions["pinner"]
    return state


def pinner() -> Service:
    """The service of the current application."""
    return app_state().pinner


def caller() -> Caller:
    """The caller of the current request, for the audit trail."""
    return Caller(g.actor, origin(), g.request_id)


def origin() -> str:
    """Where the current request comes from: a process of this host, or an IP address."""
    match request.environ.get(ENVIRON):
        case UnixPeer(pid=pid):
            return f"process {pid}"
        case _:
            return request.remote_addr or "unknown"
