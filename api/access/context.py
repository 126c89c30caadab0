"""The application's state and the caller of the current request, for the views."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from flask import current_app, g

from pinner.api.access.credentials import Credentials, Identity
from pinner.api.access.host_service import HostService
from pinner.api.access.policies import Authorizer
from pinner.api.access.refusals import RefusalAudit
from pinner.api.kept_plans import KeptPlans
from pinner.api.streams import Streams
from pinner.model.errors import NotFound
from pinner.model.run.audit import Caller
from pinner.service.protocol import Service
from pinner.service.upkeep.monitor import Monitor
from pinner.store.idempotency import IdempotencyKeys


@dataclass(frozen=True, slots=True)
class AccessControl:
    """The parts that decide on a request: who sends it, what the sender may do, and the record of a refusal."""

    credentials: Credentials
    authorizer: Authorizer
    refusals: RefusalAudit


@dataclass(frozen=True, slots=True)
class AppState:
    """The objects that an application shares between its requests: the service, the access control, the streams."""

    pinner: Service
    access: AccessControl
    rules: Mapping[str, str]
    """The policy rule of each endpoint that needs credentials."""
    streams: Streams
    idempotency_keys: IdempotencyKeys | None
    """None: the server stores no answers."""
    now: Callable[[], datetime]
    monitor: Monitor | None
    kept_plans: KeptPlans = field(default_factory=KeptPlans)


def app_state() -> AppState:
    """The state of the current application."""
    state: AppState = current_app.extensions["pinner"]
    return state


def pinner() -> Service:
    """The service, limited to the host of the caller's token where the token has one."""
    whole, host = app_state().pinner, identity().host
    return HostService(whole, host) if host else whole


def require_own_host(kind: str, name: str, host: str) -> None:
    """Raises NotFound for an object of a host that the caller's token does not cover.

    The service that ``pinner()`` returns checks this itself; a view that answers from a cache calls it.
    """
    if identity().host not in ("", host):
        raise NotFound(kind, name)


def identity() -> Identity:
    """The sender of the current request."""
    sender: Identity = g.identity
    return sender


def caller() -> Caller:
    """The caller of the current request, for the audit trail."""
    sender = identity()
    return Caller(sender.actor, sender.origin, g.request_id)
