# ruff: noqa: D102, ARG002 - Service documents each method
"""RemoteService: the use cases answered by a pinner server over REST.

The ``caller`` arguments are ignored here: the server knows its caller by the token, or by the kernel's credentials of
the Unix socket.
"""

import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from pinner import codec
from pinner.model.agent_audit import Anchor
from pinner.model.audit import AuditRecord, Caller
from pinner.model.drift import DriftReport
from pinner.model.errors import HostUnreachable, Invalid, NotPermitted, PinnerError, revive
from pinner.model.event import GuestEvent, GuestEventOutcome
from pinner.model.journal import Entry, Run, RunProgress, RunState
from pinner.model.page import MAX_LIMIT, Page, SortDirection
from pinner.model.plan import Plan, PlanSummary
from pinner.model.policy import Expected, Policy
from pinner.model.request import Request
from pinner.model.snapshot import MAX_SAMPLE_SECONDS, Snapshot
from pinner.model.topology import Topology
from pinner.model.verification import Verification
from pinner.owners import connect_remedy
from pinner.service.protocol import GuestExclusion, StrategyInfo
from pinner.service.run_follower import RunFollower
from pinner.service.streams import lines, server_sent_events

T = TypeVar("T")

UNIX = "unix:"
"""The scheme of the URL of a Unix socket; an absolute path follows."""
EXAMPLES = "a URL such as unix:/run/pinner/api.sock or http://127.0.0.1:8077"
ACTOR = "X-Pinner-Actor"
"""The header with the person for whom root calls, percent-encoded."""
MAX_PORT = 65535
"""The largest TCP port."""
ANSWER_TIMEOUT = MAX_SAMPLE_SECONDS + 30
"""Seconds: the longest sample of a server, and half a minute for the answer."""
SILENCE = 35.0
"""Seconds without data after which an event stream counts as broken; servers send a comment every ten seconds."""
POLL = 0.5
"""Seconds between two readings of a run that cannot be followed as a stream."""


class RemoteService:
    """Satisfies Service with the server at ``url``: unix:/path/of/socket, http://host:port or https://host:port.

    ``token`` is the bearer token, which a server requires over TCP. The server has ``patience`` seconds for each
    answer. ``actor`` is the person for whom root calls; a Unix socket takes it from root alone. ``where`` is the URL
    for people, empty for a server that ends with this command.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        patience: float = ANSWER_TIMEOUT,
        *,
        actor: str = "",
        where: str | None = None,
    ) -> None:
        self._url = url
        self.where = url if where is None else where
        base, socket = _target(url)
        if token and not (token.isascii() and token.isprintable()):
            raise Invalid("token", "(not shown)", "printable ASCII, on one line")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if actor and socket:
            headers[ACTOR] = quote(actor, safe="")
        timeout = httpx.Timeout(patience, connect=10.0)
        # No proxy of the environment is used: a proxy would receive the token, and cannot reach this host's loopback.
        transport = httpx.HTTPTransport(uds=socket) if socket else None
        # The system's authorities, or those of SSL_CERT_FILE; httpx would use a list of its own.
        tls = ssl.create_default_context() if base.scheme == "https" else False
        self._http = httpx.Client(
            base_url=base, headers=headers, timeout=timeout, trust_env=False, transport=transport, verify=tls
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def hosts(self) -> tuple[str, ...]:
        return self._whole(str, "hosts")

    def strategies(self) -> tuple[StrategyInfo, ...]:
        return self._whole(StrategyInfo, "strategies")

    def observe(self, host: str, sample_seconds: float) -> Snapshot:
        return self._get(Snapshot, "hosts", host, sample_seconds=sample_seconds)

    def topology(self, host: str) -> Topology:
        return self._get(Topology, "hosts", host, "topology")

    def take_snapshot(self, host: str, sample_seconds: float | None, caller: Caller) -> tuple[str, Snapshot]:
        taken = self._post(dict[str, Any], "hosts", host, "snapshot", body={"sample_seconds": sample_seconds})
        name = str(taken.get("id"))
        return name, self.snapshot(name)

    def snapshot(self, snapshot: str) -> Snapshot:
        return self._get(Snapshot, "snapshots", snapshot)

    def plan(
        self,
        host: str,
        request: Request,
        snapshot: str | None,
        sample_seconds: float | None,
        caller: Caller,
    ) -> Plan:
        body = codec.plain(request) | {"snapshot": snapshot, "sample_seconds": sample_seconds}
        return self._post(Plan, "hosts", host, "plans", body=body)

    def plan_by_id(self, plan: str) -> Plan:
        return self._get(Plan, "plans", plan)

    def plans(
        self, host: str | None, limit: int, marker: str, *, direction: SortDirection = "desc"
    ) -> Page[PlanSummary]:
        return self._get(Page[PlanSummary], "plans", host=host, limit=limit, marker=marker, sort_dir=direction)

    def apply(self, plan: str, persist: bool, caller: Caller, *, migrate_memory: bool = False) -> Run:
        return self._post(Run, "plans", plan, "apply", body={"persist": persist, "migrate_memory": migrate_memory})

    def rollback(self, run: str, caller: Caller) -> Run:
        return self._post(Run, "runs", run, "rollback", body={})

    def run(self, run: str) -> Run:
        return self._detail(run)[0]

    def runs(
        self,
        host: str | None,
        limit: int,
        marker: str,
        *,
        state: RunState | None = None,
        direction: SortDirection = "desc",
    ) -> Page[Run]:
        return self._get(Page[Run], "runs", host=host, limit=limit, marker=marker, state=state, sort_dir=direction)

    def entries(self, run: str) -> tuple[Entry, ...]:
        return self._detail(run)[1]

    def follow(self, run: str) -> Iterator[RunProgress]:
        """Reads the server's event stream. Where there is no stream, or it breaks, reads the run periodically."""
        follower = RunFollower()
        try:
            for progress in self._stream(run):
                yield follower.learn(progress)
                if progress.entry is None:
                    return
        except httpx.TransportError:
            pass
        while True:
            for progress in follower.progress_of(*self._detail(run)):
                yield progress
                if progress.entry is None:
                    return
            time.sleep(POLL)

    def policy(self, host: str) -> Policy:
        return self._get(Policy, "hosts", host, "policy")

    def set_policy(self, host: str, policy: Policy, caller: Caller, expected: Expected = None) -> Policy:
        body = codec.plain(policy)
        return self._call(Policy, "PUT", ("hosts", host, "policy"), json=body, headers=_conditions(expected))

    def delete_policy(self, host: str, caller: Caller, expected: Expected = None) -> None:
        self._send("DELETE", ("hosts", host, "policy"), headers=_conditions(expected))

    def drift(self, host: str) -> DriftReport:
        return self._get(DriftReport, "hosts", host, "drift")

    def set_excluded(self, host: str, guest: str, excluded: bool, caller: Caller) -> GuestExclusion:
        return self._call(
            GuestExclusion, "PUT", ("hosts", host, "guests", guest, "excluded"), json={"excluded": excluded}
        )

    def guest_event(self, host: str | None, event: GuestEvent, caller: Caller) -> GuestEventOutcome:
        body = codec.plain(event)
        kind = body.pop("kind")
        if kind != "leaving":
            del body["cpus"]
        return self._post(GuestEventOutcome, "events", f"guest-{kind}", body=body | {"host": host})

    def audit(
        self,
        host: str | None,
        actor: str | None,
        since: datetime | None,
        limit: int,
        marker: str,
        *,
        direction: SortDirection = "desc",
    ) -> Page[AuditRecord]:
        query = {"host": host, "actor": actor, "since": since.isoformat() if since else None, "sort_dir": direction}
        return self._get(Page[AuditRecord], "audit", limit=limit, marker=marker, **query)

    def verify_audit(self, anchor: Anchor | None = None) -> Verification:
        path = (Verification, "audit", "verify")
        return self._get(*path) if anchor is None else self._post(*path, body=codec.plain(anchor))

    def audit_anchor(self) -> Anchor:
        return self._get(Anchor, "audit", "anchor")

    def export_audit(self) -> Iterator[str]:
        with self._reachable(), self._http.stream("GET", _url(("audit", "export"))) as answer:
            if not answer.is_success:
                raise _error(answer.status_code, answer.read())
            yield from lines(answer.iter_bytes())

    def _detail(self, run: str) -> tuple[Run, tuple[Entry, ...]]:
        parts = self._get(dict[str, Any], "runs", run)
        entries: tuple[Entry, ...] = _read(tuple[Entry, ...], parts.get("entries"))
        return _read(Run, parts.get("run")), entries

    def _whole(self, kind: type[T], *path: str) -> tuple[T, ...]:
        """All pages of a list as one."""
        found: list[T] = []
        marker = ""
        while True:
            page: Page[T] = self._get(Page[kind], *path, limit=MAX_LIMIT, marker=marker)  # type: ignore[valid-type]
            found += page.items
            marker = page.next
            if not marker:
                return tuple(found)

    def _get(self, kind: type[T], *path: str, **query: str | float | None) -> T:
        given = {name: value for name, value in query.items() if value not in (None, "")}
        return self._call(kind, "GET", path, params=given)

    def _post(self, kind: type[T], *path: str, body: Mapping[str, Any]) -> T:
        return self._call(kind, "POST", path, json=body)

    def _call(self, kind: type[T], method: str, path: tuple[str, ...], **content: Any) -> T:
        return _read(kind, _json(self._send(method, path, **content)))

    def _send(self, method: str, path: tuple[str, ...], **content: Any) -> bytes:
        """The body of a successful answer. Raises the error that the server sent, HostUnreachable and Invalid."""
        with self._reachable():
            answer = self._http.request(method, _url(path), **content)
        if not answer.is_success:
            raise _error(answer.status_code, answer.content)
        return answer.content

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        """Raise NotPermitted, HostUnreachable or Invalid where the request cannot be sent or is not answered."""
        try:
            yield
        except httpx.HTTPError as error:
            if _refused_by_mode(error):
                raise NotPermitted(self._url, connect_remedy(Path(self._url.removeprefix(UNIX)))) from None
            why = f"no pinner server answers ({error}); is `pinner serve` running there?"
            raise HostUnreachable(self._url, why) from None
        except UnicodeEncodeError as error:
            raise Invalid("text", ascii(error.object), "text in UTF-8") from None

    def _stream(self, run: str) -> Iterator[RunProgress]:
        """The progress from the event stream. Ends early where the server has no free stream."""
        timeout = httpx.Timeout(SILENCE, connect=10.0)
        with self._http.stream("GET", _url(("runs", run, "events")), timeout=timeout) as answer:
            if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
                return
            if not answer.is_success:
                raise _error(answer.status_code, answer.read())
            for name, data in server_sent_events(answer.iter_bytes()):
                if name == b"error":
                    raise _error(answer.status_code, data)
                if name in (b"change", b"end"):
                    yield _read(RunProgress, _json(data))


def _target(url: str) -> tuple[httpx.URL, str]:
    """The base URL of the requests, and the path of the Unix socket, empty for TCP. Raises Invalid."""
    if url.startswith(UNIX):
        socket = url.removeprefix(UNIX)
        if not socket.startswith("/"):
            raise Invalid("url", url, f"an absolute path after {UNIX}, such as unix:/run/pinner/api.sock")
        return httpx.URL("http://localhost"), socket
    try:
        base = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise Invalid("url", url, f"{EXAMPLES} ({error})") from None
    if base.scheme not in ("http", "https") or not base.host or (base.port or 0) > MAX_PORT:
        raise Invalid("url", url, EXAMPLES)
    return base, ""


def _refused_by_mode(error: BaseException | None) -> bool:
    """Whether the kernel refused the connection because of the mode of the socket or its folders."""
    while error is not None:
        if isinstance(error, PermissionError):
            return True
        error = error.__cause__ or error.__context__
    return False


def _conditions(expected: Expected) -> dict[str, str]:
    """The header fields that make the server check the present revision (RFC 9110, section 13.1)."""
    if expected is None:
        return {}
    revisions = ", ".join(f'"{revision}"' for revision in expected if revision)
    return {"If-Match": revisions} if revisions else {"If-None-Match": "*"}


def _url(path: tuple[str, ...]) -> str:
    return "/v1/" + "/".join(quote(part, safe="", errors="replace") for part in path)


def _json(content: bytes) -> Any:
    try:
        return codec.load(object, content, "answer")
    except Invalid:
        raise PinnerError(f"the server's answer is not JSON: {content[:80]!r}") from None


def _read(kind: type[T], value: object) -> T:
    try:
        return codec.read(kind, value, "answer")
    except Invalid as error:
        raise PinnerError(f"the server's answer does not fit this version of pinner: {error}") from None


def _error(status: int, content: bytes) -> PinnerError:
    """The error that the server sent, with the type that it had in the server."""
    try:
        sent = _json(content)["error"]
        return revive(str(sent["code"]), str(sent["message"]), dict(sent["details"]))
    except (PinnerError, LookupError, TypeError, ValueError):
        return PinnerError(f"the server answered {status}, without an error that pinner knows: {content[:80]!r}")
