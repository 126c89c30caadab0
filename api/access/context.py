"""The application's state and the caller of the current request, for the views."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from flask import current_app, g

from pinner import codec
from pinner.api.access.credentials import Credentials, Identity
from pinner.api.access.host_service import of_one_host
from pinner.api.access.policies import Authorizer
from pinner.api.access.refusals import RefusalAudit
from pinner.api.streams import Streams
from pinner.bounded_cache import BoundedCache
from pinner.model.errors import NotFound
from pinner.model.plan.plan import Plan
from pinner.model.run.audit import Caller
from pinner.service.protocol import Service
from pinner.service.upkeep.monitor import Monitor
from pinner.store.idempotency import IdempotencyKeys

KEPT = 64
"""Plans that are kept as JSON; one of a large host takes about 100 KB."""
KEPT_SECONDS = 60.0
"""A plan that was deleted from the database is shown for at most so long."""


@dataclass(frozen=True, slots=True)
class KeptPlan:
    host: str
    json: bytes
    until: float


class KeptPlans:
    """The plans that were shown last: a stored plan never changes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._plans: BoundedCache[str, KeptPlan] = BoundedCache(KEPT)

    def get(self, plan: str, load: Callable[[str], Plan]) -> KeptPlan:
        """The plan with this id, from ``load`` where it is not kept. Raises what ``load`` raises."""
        kept = self._plans.get(plan)
        now = self._clock()
        if kept is None or kept.until < now:
            loaded = load(plan)
            kept = KeptPlan(loaded.host, codec.dump(loaded) + b"\n", now + KEPT_SECONDS)
            self._plans.put(plan, kept)
        return kept


@dataclass(frozen=True, slots=True)
class AccessControl:
    """The parts that decide on a request."""

    credentials: Credentials
    authorizer: Authorizer
    refusals: RefusalAudit


@dataclass(frozen=True, slots=True)
class AppState:
    """The objects that the requests of an application share."""

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
    state: AppState = current_app.extensions["pinner"]
    return state


def pinner() -> Service:
    """The service, limited to the host of the caller's token if it has one."""
    whole, host = app_state().pinner, identity().host
    return of_one_host(whole, host) if host else whole


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
