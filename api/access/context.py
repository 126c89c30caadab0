"""The application's state, the caller of the current request, and the service as this caller sees it. A view reaches
the service only through ``pinner()``, so no view can forget that a token may be limited to one host. Another host is
Forbidden, whether it exists or not, and its plans, runs and snapshots are NotFound."""

import inspect
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import wraps
from typing import Any, cast

from cachetools import TTLCache, cachedmethod
from flask import current_app, g
from werkzeug.exceptions import Forbidden

from pinner import codec
from pinner.api.access.credentials import Credentials, Identity
from pinner.api.access.policies import Authorizer
from pinner.api.access.refusals import RefusalAudit
from pinner.api.streams import Streams
from pinner.model.errors import Invalid, NotFound
from pinner.model.outcome.outcome import Probe, ProbeOptions
from pinner.model.page import Page, PageRequest
from pinner.model.plan.plan import Plan, PlanSummary
from pinner.model.plan.request import Request
from pinner.model.run.agent_audit import Anchor
from pinner.model.run.audit import Caller
from pinner.model.run.journal import Run, RunState
from pinner.model.run.verification import Verification
from pinner.model.snapshot import Snapshot
from pinner.service.protocol import Service, StrategyInfo
from pinner.service.upkeep.monitor import Monitor
from pinner.store.idempotency import IdempotencyKeys

KEPT = 64
"""A plan of a large host takes about 100 KB as JSON."""
KEPT_SECONDS = 60.0
"""A deleted plan is shown at most so long."""


@dataclass(frozen=True, slots=True)
class KeptPlan:
    host: str
    json: bytes


class KeptPlans:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._plans: TTLCache[str, KeptPlan] = TTLCache(KEPT, KEPT_SECONDS, clock)
        self._lock = threading.Lock()

    @cachedmethod(lambda self: self._plans, lambda _, plan, load: plan, lambda self: self._lock)  # noqa: ARG005
    def get(self, plan: str, load: Callable[[str], Plan]) -> KeptPlan:
        loaded = load(plan)
        return KeptPlan(loaded.host, codec.dump(loaded) + b"\n")


@dataclass(frozen=True, slots=True)
class AccessControl:
    credentials: Credentials
    authorizer: Authorizer
    refusals: RefusalAudit


@dataclass(frozen=True, slots=True)
class AppState:
    pinner: Service
    access: AccessControl
    rules: Mapping[str, str]
    """Policy rules by endpoint."""
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
    whole, host = app_state().pinner, identity().host
    return of_one_host(whole, host) if host else whole


def require_own_host(kind: str, name: str, host: str) -> None:
    """Raises NotFound. Only a view that answers from a cache needs it."""
    if identity().host not in ("", host):
        raise NotFound(kind, name)


def identity() -> Identity:
    sender: Identity = g.identity
    return sender


def caller() -> Caller:
    sender = identity()
    return Caller(sender.actor, sender.origin, g.request_id)


def of_one_host(service: Service, host: str) -> Service:
    return cast(Service, HostService(service, host))


class HostService:
    """Service with the objects of one host. Use cases that are not written here check their first argument."""

    where = ""

    def __init__(self, service: Service, host: str) -> None:
        self._service = service
        self._host = host

    def hosts(self) -> tuple[str, ...]:
        return tuple(host for host in self._service.hosts() if host == self._host)

    def strategies(self) -> tuple[StrategyInfo, ...]:
        return self._service.strategies()

    def snapshot(self, snapshot: str) -> Snapshot:
        stored = self._service.snapshot(snapshot)
        self._require_own("snapshot", snapshot, stored.host)
        return stored

    def plan(
        self,
        host: str,
        request: Request,
        snapshot: str | None,
        sample_seconds: float | None,
        caller: Caller,
        replaces: str | None = None,
    ) -> Plan:
        host = self._only(host)
        if snapshot is not None:
            self.snapshot(snapshot)
        if replaces is not None:
            self.plan_by_id(replaces)
        return self._service.plan(host, request, snapshot, sample_seconds, caller, replaces)

    def plan_by_id(self, plan: str) -> Plan:
        stored = self._service.plan_by_id(plan)
        self._require_own("plan", plan, stored.host)
        return stored

    def plans(self, host: str | None, part: PageRequest) -> Page[PlanSummary]:
        host = self._only(host)
        if part.marker:
            self._require_own_marker(part.marker, self.plan_by_id)
        return self._service.plans(host, part)

    def run(self, run: str) -> Run:
        stored = self._service.run(run)
        self._require_own("run", run, stored.host)
        return stored

    def probe(self, plan: str, options: ProbeOptions, caller: Caller) -> Probe:
        for name in (plan, *options.rivals):
            self.plan_by_id(name)
        return self._service.probe(plan, options, caller)

    def probe_by_id(self, probe: str) -> Probe:
        stored = self._service.probe_by_id(probe)
        self._require_own("probe", probe, stored.host)
        return stored

    def runs(self, host: str | None, part: PageRequest, *, state: RunState | None = None) -> Page[Run]:
        host = self._only(host)
        if part.marker:
            self._require_own_marker(part.marker, self.run)
        return self._service.runs(host, part, state=state)

    def verify_audit(self, anchor: Anchor | None = None) -> Verification:  # noqa: ARG002
        raise self._no_chain()

    def audit_anchor(self) -> Anchor:
        raise self._no_chain()

    def export_audit(self) -> Iterator[str]:
        raise self._no_chain()

    def _no_chain(self) -> Forbidden:
        return Forbidden(
            f"this token may act on host {self._host!r} only; the chain of the audit trail covers every host"
        )

    def _only(self, host: str | None) -> str:
        if host not in (None, self._host):
            raise Forbidden(f"this token may act on host {self._host!r} only, not on {host!r}")
        if not self.hosts():
            raise NotFound("host", self._host)
        return self._host

    def _require_own_marker(self, marker: str, find: Callable[[str], Plan | Run]) -> None:
        try:
            find(marker)
        except NotFound:
            raise Invalid("marker", marker, "the `next` of the previous page") from None

    def _require_own(self, kind: str, name: str, host: str) -> None:
        if host != self._host:
            raise NotFound(kind, name)


_FINDERS: dict[str, Callable[[HostService, str], object]] = {
    "plan": HostService.plan_by_id,
    "run": HostService.run,
    "probe": HostService.probe_by_id,
}


def _limited(name: str, use_case: Callable[..., Any]) -> Callable[..., Any]:
    """Raises KeyError, at the import, where the first argument is neither a host nor an object of one."""
    signature = inspect.signature(use_case)
    first = list(signature.parameters)[1]
    find = None if first == "host" else _FINDERS[first]

    @wraps(use_case)
    def call(self: HostService, *arguments: object, **named: object) -> object:
        bound = signature.bind(self, *arguments, **named)
        if find is None:
            bound.arguments[first] = self._only(bound.arguments[first])
        else:
            find(self, bound.arguments[first])
        return getattr(self._service, name)(*bound.args[1:], **bound.kwargs)

    return call


for _name, _use_case in vars(Service).items():
    if inspect.isfunction(_use_case) and not _name.startswith("_") and _name not in vars(HostService):
        setattr(HostService, _name, _limited(_name, _use_case))
