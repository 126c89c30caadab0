# ruff: noqa: ARG002
"""RemoteService: the use cases answered by a pinner server over REST.

The ``caller`` arguments are ignored: the server knows its caller by the token, or by the kernel's credentials of the
Unix socket.
"""

import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime
from typing import Any

import httpx

from pinner import codec
from pinner.model.event import GuestEvent, GuestEventOutcome
from pinner.model.guest.guest import GuestExclusion
from pinner.model.machine.interrupts import HostInterrupts
from pinner.model.machine.topology import Topology
from pinner.model.outcome.blame import Blame
from pinner.model.outcome.check import CheckReport
from pinner.model.outcome.measures import Measures, Span
from pinner.model.outcome.outcome import Probe, RunOutcome
from pinner.model.page import Page, PageRequest
from pinner.model.plan.plan import Plan, PlanSummary
from pinner.model.plan.request import Request
from pinner.model.policy import DriftReport, Expected, Policy, Setback, ShownPolicy
from pinner.model.questions import Capacity, Explanation, GuestShape, Scenario, WhatIf
from pinner.model.run.agent_audit import Anchor
from pinner.model.run.audit import AuditRecord, Caller
from pinner.model.run.journal import ApplyOptions, Entry, Run, RunProgress, RunState
from pinner.model.run.verification import Verification
from pinner.model.snapshot import MAX_SAMPLE_SECONDS, Snapshot
from pinner.service.protocol import StrategyInfo
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


class RemoteService:
    """Satisfies Service; RestClient describes the arguments.

    ``where`` is the URL for people, empty for a server that ends with this command.
    """

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

    def hosts(self) -> tuple[str, ...]:
        return self._rest.whole(str, "hosts")

    def strategies(self) -> tuple[StrategyInfo, ...]:
        return self._rest.whole(StrategyInfo, "strategies")

    def observe(self, host: str, sample_seconds: float) -> Snapshot:
        return self._rest.get(Snapshot, "hosts", host, sample_seconds=sample_seconds)

    def topology(self, host: str) -> Topology:
        return self._rest.get(Topology, "hosts", host, "topology")

    def capacity(self, host: str, vcpus: int | None = None, shape: GuestShape | None = None) -> Capacity:
        if shape is None:
            return self._rest.get(Capacity, "hosts", host, "capacity", vcpus=vcpus)
        size = {"vcpus": shape.vcpus, "memory_kib": shape.memory_kib, "page_kib": shape.page_kib}
        return self._rest.get(Capacity, "hosts", host, "capacity", **size)

    def what_if(self, host: str, request: Request, scenario: Scenario, sample_seconds: float) -> WhatIf:
        differences = codec.plain(scenario)
        body = {"request": codec.plain(request), "then": differences.pop("request"), **differences}
        return self._rest.post(WhatIf, "hosts", host, "what-if", body=body | {"sample_seconds": sample_seconds})

    def findings(self, host: str, sample_seconds: float) -> CheckReport:
        return self._rest.get(CheckReport, "hosts", host, "findings", sample_seconds=sample_seconds)

    def measures(self, host: str, span: Span, guest: str | None = None, series: tuple[str, ...] = ()) -> Measures:
        begin, end = (at.isoformat() if at else None for at in (span.begin, span.end))
        query = {"from": begin, "to": end, "step": span.step, "guest": guest, "series": ",".join(series)}
        return self._rest.get(Measures, "hosts", host, "measures", **query)

    def blame(self, host: str, guest: str, seconds: float) -> Blame:
        return self._rest.get(Blame, "hosts", host, "guests", guest, "blame", seconds=seconds)

    def interrupts(self, host: str) -> HostInterrupts:
        return self._rest.get(HostInterrupts, "hosts", host, "interrupts")

    def take_snapshot(self, host: str, sample_seconds: float | None, caller: Caller) -> tuple[str, Snapshot]:
        taken = self._rest.post(dict[str, Any], "hosts", host, "snapshot", body={"sample_seconds": sample_seconds})
        name = str(taken.get("id"))
        return name, self.snapshot(name)

    def snapshot(self, snapshot: str) -> Snapshot:
        return self._rest.get(Snapshot, "snapshots", snapshot)

    def plan(
        self,
        host: str,
        request: Request,
        snapshot: str | None,
        sample_seconds: float | None,
        caller: Caller,
    ) -> Plan:
        body = codec.plain(request) | {"snapshot": snapshot, "sample_seconds": sample_seconds}
        return self._rest.post(Plan, "hosts", host, "plans", body=body)

    def plan_by_id(self, plan: str) -> Plan:
        return self._rest.get(Plan, "plans", plan)

    def explain(self, plan: str, guest: str) -> Explanation:
        return self._rest.get(Explanation, "plans", plan, "explanation", guest=guest)

    def plans(self, host: str | None, part: PageRequest) -> Page[PlanSummary]:
        return self._rest.get(Page[PlanSummary], "plans", host=host, **_query(part))

    def apply(self, plan: str, options: ApplyOptions, caller: Caller) -> Run:
        body = asdict(options) | {"watch_seconds": options.watch_seconds or None}
        return self._rest.post(Run, "plans", plan, "apply", body=body)

    def rollback(self, run: str, caller: Caller) -> Run:
        return self._rest.post(Run, "runs", run, "rollback", body={})

    def rollback_all(self, host: str, caller: Caller) -> Run:
        return self._rest.post(Run, "hosts", host, "rollback", body={})

    def run(self, run: str) -> Run:
        return self._detail(run)[0]

    def outcome(self, run: str) -> RunOutcome:
        return self._rest.get(RunOutcome, "runs", run, "outcome")

    def probe(self, plan: str, windows: int, seconds: int, caller: Caller) -> Probe:
        return self._rest.post(Probe, "plans", plan, "probe", body={"windows": windows, "seconds": seconds})

    def probe_by_id(self, probe: str) -> Probe:
        return self._rest.get(Probe, "probes", probe)

    def cancel_probe(self, probe: str, caller: Caller) -> Probe:
        return self._rest.call(Probe, "DELETE", ("probes", probe))

    def runs(self, host: str | None, part: PageRequest, *, state: RunState | None = None) -> Page[Run]:
        return self._rest.get(Page[Run], "runs", host=host, state=state, **_query(part))

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

    def policy(self, host: str) -> Policy:
        return self._rest.get(Policy, "hosts", host, "policy")

    def setback(self, host: str) -> Setback | None:
        return self._rest.get(ShownPolicy, "hosts", host, "policy").setback

    def set_policy(self, host: str, policy: Policy, caller: Caller, expected: Expected = None) -> Policy:
        body = codec.plain(policy)
        return self._rest.call(Policy, "PUT", ("hosts", host, "policy"), json=body, headers=_conditions(expected))

    def delete_policy(self, host: str, caller: Caller, expected: Expected = None) -> None:
        self._rest.send("DELETE", ("hosts", host, "policy"), headers=_conditions(expected))

    def drift(self, host: str) -> DriftReport:
        return self._rest.get(DriftReport, "hosts", host, "drift")

    def set_excluded(self, host: str, guest: str, excluded: bool, caller: Caller) -> GuestExclusion:
        return self._rest.call(
            GuestExclusion, "PUT", ("hosts", host, "guests", guest, "excluded"), json={"excluded": excluded}
        )

    def guest_event(self, host: str | None, event: GuestEvent, caller: Caller) -> GuestEventOutcome:
        body = codec.plain(event)
        kind = body.pop("kind")
        if kind != "leaving":
            del body["cpus"]
        return self._rest.post(GuestEventOutcome, "events", f"guest-{kind}", body=body | {"host": host})

    def audit(
        self, host: str | None, actor: str | None, since: datetime | None, part: PageRequest
    ) -> Page[AuditRecord]:
        moment = since.isoformat() if since else None
        return self._rest.get(Page[AuditRecord], "audit", host=host, actor=actor, since=moment, **_query(part))

    def verify_audit(self, anchor: Anchor | None = None) -> Verification:
        path = (Verification, "audit", "verify")
        return self._rest.get(*path) if anchor is None else self._rest.post(*path, body=codec.plain(anchor))

    def audit_anchor(self) -> Anchor:
        return self._rest.get(Anchor, "audit", "anchor")

    def export_audit(self) -> Iterator[str]:
        with self._rest.reachable(), self._rest.stream("audit", "export") as answer:
            if not answer.is_success:
                raise self._rest.error(answer)
            yield from lines(answer.iter_bytes())

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


def _query(part: PageRequest) -> dict[str, str | int]:
    return {"limit": part.limit, "marker": part.marker, "sort_dir": part.direction}


def _conditions(expected: Expected) -> dict[str, str]:
    """RFC 9110, section 13.1."""
    if expected is None:
        return {}
    revisions = ", ".join(f'"{revision}"' for revision in expected if revision)
    return {"If-Match": revisions} if revisions else {"If-None-Match": "*"}
