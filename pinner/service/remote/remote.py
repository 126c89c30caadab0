# ruff: noqa: ARG002
"""RemoteService: the use cases answered by a pinner server over REST. The ``caller`` arguments are ignored: the server
knows its caller by the token, or by the Unix socket."""

import inspect
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import httpx

from pinner import codec
from pinner.model.event import GuestEvent, GuestEventOutcome
from pinner.model.outcome.measures import Measures, Span
from pinner.model.outcome.outcome import Probe, ProbeOptions
from pinner.model.page import PageRequest
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.policy import Expected, Policy, Setback, ShownPolicy
from pinner.model.questions import Capacity, GuestShape, Scenario, WhatIf
from pinner.model.run.agent_audit import Anchor
from pinner.model.run.audit import Caller
from pinner.model.run.journal import ApplyOptions, Entry, Run, RunProgress
from pinner.model.run.verification import Verification
from pinner.model.snapshot import MAX_SAMPLE_SECONDS, Snapshot
from pinner.service.protocol import Service, StrategyInfo
from pinner.service.remote.rest_client import (
    MAX_ANSWER,
    RestClient,
    error_of,
    lines,
    read,
    read_json,
    server_sent_events,
)
from pinner.service.runs.run_follower import RunFollower

ANSWER_TIMEOUT = MAX_SAMPLE_SECONDS + 30
"""Seconds: the longest sample of a server, and half a minute for the answer."""
SILENCE = 35.0
"""Seconds without data after which an event stream counts as broken; servers send a comment every ten seconds."""
POLL = 0.5
"""Seconds between two readings of a run that cannot be followed as a stream."""


P = ParamSpec("P")
T = TypeVar("T")


def _route(use_case: Callable[Concatenate[Service, P], T], route: str) -> Callable[Concatenate["RemoteService", P], T]:
    """Arguments that are not in the route's path are the body, or the query of a GET."""
    signature = inspect.signature(use_case)
    kind: type[T] = signature.return_annotation
    method, path = route.split()

    @wraps(use_case)
    def ask(remote: "RemoteService", /, *given: P.args, **named: P.kwargs) -> T:
        bound = signature.bind(remote, *given, **named)
        bound.apply_defaults()
        arguments = {name: value for name, value in bound.arguments.items() if name not in ("self", "caller")}
        parts = tuple(arguments.pop(part[1:-1]) if part.startswith("{") else part for part in path.split("/"))
        sent = {"json": arguments} if method in ("POST", "PUT") else {"params": _query(arguments)}
        return remote._rest.call(kind, method, parts, **sent)

    return ask


class RemoteService:
    """Satisfies Service; RestClient describes the arguments.

    ``where`` is the URL for people, empty for a server that ends with this command."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        patience: float = ANSWER_TIMEOUT,
        *,
        actor: str = "",
        where: str | None = None,
        limit: int = MAX_ANSWER,
    ) -> None:
        self._rest = RestClient(url, token, patience, actor, limit)
        self.where = url if where is None else where

    def close(self) -> None:
        self._rest.close()

    observe = _route(Service.observe, "GET hosts/{host}")
    topology = _route(Service.topology, "GET hosts/{host}/topology")
    findings = _route(Service.findings, "GET hosts/{host}/findings")
    blame = _route(Service.blame, "GET hosts/{host}/guests/{guest}/blame")
    interrupts = _route(Service.interrupts, "GET hosts/{host}/interrupts")
    snapshot = _route(Service.snapshot, "GET snapshots/{snapshot}")
    plan_by_id = _route(Service.plan_by_id, "GET plans/{plan}")
    explain = _route(Service.explain, "GET plans/{plan}/explanation")
    plans = _route(Service.plans, "GET plans")
    rollback = _route(Service.rollback, "POST runs/{run}/rollback")
    rollback_all = _route(Service.rollback_all, "POST hosts/{host}/rollback")
    outcome = _route(Service.outcome, "GET runs/{run}/outcome")
    probe_by_id = _route(Service.probe_by_id, "GET probes/{probe}")
    cancel_probe = _route(Service.cancel_probe, "DELETE probes/{probe}")
    runs = _route(Service.runs, "GET runs")
    policy = _route(Service.policy, "GET hosts/{host}/policy")
    drift = _route(Service.drift, "GET hosts/{host}/drift")
    set_excluded = _route(Service.set_excluded, "PUT hosts/{host}/guests/{guest}/excluded")
    audit = _route(Service.audit, "GET audit")
    audit_anchor = _route(Service.audit_anchor, "GET audit/anchor")

    def hosts(self) -> tuple[str, ...]:
        return self._rest.whole(str, "hosts")

    def strategies(self) -> tuple[StrategyInfo, ...]:
        return self._rest.whole(StrategyInfo, "strategies")

    def capacity(self, host: str, vcpus: int | None = None, shape: GuestShape | None = None) -> Capacity:
        if shape is None:
            return self._rest.get(Capacity, "hosts", host, "capacity", vcpus=vcpus)
        size = {"vcpus": shape.vcpus, "memory_kib": shape.memory_kib, "page_kib": shape.page_kib}
        return self._rest.get(Capacity, "hosts", host, "capacity", **size)

    def what_if(self, host: str, request: Request, scenario: Scenario, sample_seconds: float) -> WhatIf:
        differences = codec.plain(scenario)
        body = {"request": codec.plain(request), "then": differences.pop("request"), **differences}
        return self._rest.post(WhatIf, "hosts", host, "what-if", body=body | {"sample_seconds": sample_seconds})

    def measures(self, host: str, span: Span, guest: str | None = None, series: tuple[str, ...] = ()) -> Measures:
        begin, end = (at.isoformat() if at else None for at in (span.begin, span.end))
        query = {"from": begin, "to": end, "step": span.step, "guest": guest, "series": ",".join(series)}
        return self._rest.get(Measures, "hosts", host, "measures", **query)

    def take_snapshot(self, host: str, sample_seconds: float | None, caller: Caller) -> tuple[str, Snapshot]:
        taken = self._rest.post(dict[str, Any], "hosts", host, "snapshot", body={"sample_seconds": sample_seconds})
        name = str(taken.get("id"))
        return name, self.snapshot(name)

    def plan(
        self,
        host: str,
        request: Request,
        snapshot: str | None,
        sample_seconds: float | None,
        caller: Caller,
        replaces: str | None = None,
    ) -> Plan:
        body = codec.plain(request) | {"snapshot": snapshot, "sample_seconds": sample_seconds, "replaces": replaces}
        return self._rest.post(Plan, "hosts", host, "plans", body=body)

    def apply(self, plan: str, options: ApplyOptions, caller: Caller) -> Run:
        body = asdict(options) | {"watch_seconds": options.watch_seconds or None}
        return self._rest.post(Run, "plans", plan, "apply", body=body)

    def probe(self, plan: str, options: ProbeOptions, caller: Caller) -> Probe:
        return self._rest.post(Probe, "plans", plan, "probe", body=asdict(options))

    def run(self, run: str) -> Run:
        return self._detail(run)[0]

    def entries(self, run: str) -> tuple[Entry, ...]:
        return self._detail(run)[1]

    def follow(self, run: str) -> Iterator[RunProgress]:
        """Where there is no stream, or it breaks, reads the run periodically."""
        follower = RunFollower()
        try:
            for progress in self._stream(run):
                yield follower.learn(progress)
                if progress.entry is None:
                    return
        except httpx.TransportError:
            pass
        while True:
            now, entries = self._detail(run)
            for progress in follower.progress_of(now, entries, len(entries)):
                yield progress
                if progress.entry is None:
                    return
            time.sleep(POLL)

    def setback(self, host: str) -> Setback | None:
        return self._rest.get(ShownPolicy, "hosts", host, "policy").setback

    def set_policy(self, host: str, policy: Policy, caller: Caller, expected: Expected = None) -> Policy:
        body = codec.plain(policy)
        return self._rest.call(Policy, "PUT", ("hosts", host, "policy"), json=body, headers=_conditions(expected))

    def delete_policy(self, host: str, caller: Caller, expected: Expected = None) -> None:
        self._rest.send("DELETE", ("hosts", host, "policy"), headers=_conditions(expected))

    def guest_event(self, host: str | None, event: GuestEvent, caller: Caller) -> GuestEventOutcome:
        body = codec.plain(event)
        kind = body.pop("kind")
        if kind != "leaving":
            del body["cpus"]
        return self._rest.post(GuestEventOutcome, "events", f"guest-{kind}", body=body | {"host": host})

    def verify_audit(self, anchor: Anchor | None = None) -> Verification:
        path = (Verification, "audit", "verify")
        return self._rest.get(*path) if anchor is None else self._rest.post(*path, body=codec.plain(anchor))

    def export_audit(self) -> Iterator[str]:
        with self._rest.reachable(), self._rest.stream("audit", "export") as answer:
            if not answer.is_success:
                raise self._rest.error(answer)
            yield from lines(self._rest.chunks(answer))

    def _detail(self, run: str) -> tuple[Run, tuple[Entry, ...]]:
        parts = self._rest.get(dict[str, Any], "runs", run)
        entries: tuple[Entry, ...] = read(tuple[Entry, ...], parts.get("entries"))
        return read(Run, parts.get("run")), entries

    def _stream(self, run: str) -> Iterator[RunProgress]:
        with self._rest.stream("runs", run, "events", silence=SILENCE) as answer:
            if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
                return
            for name, data in server_sent_events(answer.iter_bytes()):
                if name == b"error":
                    raise error_of(answer.status_code, data)
                if name in (b"change", b"end"):
                    yield read(RunProgress, read_json(data))


def _query(arguments: dict[str, Any]) -> dict[str, Any]:
    if isinstance(part := arguments.pop("part", None), PageRequest):
        arguments |= {"limit": part.limit, "marker": part.marker, "sort_dir": part.direction}
    given = {name: value for name, value in arguments.items() if value not in (None, "")}
    return {name: value.isoformat() if isinstance(value, datetime) else value for name, value in given.items()}


def _conditions(expected: Expected) -> dict[str, str]:
    """RFC 9110, section 13.1."""
    if expected is None:
        return {}
    revisions = ", ".join(f'"{revision}"' for revision in expected if revision)
    return {"If-Match": revisions} if revisions else {"If-None-Match": "*"}
