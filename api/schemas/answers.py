"""The schemas of answers that are no values of pinner.model, and pages with the link to the next page."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode

from flask import request

from pinner.model.health import State
from pinner.model.page import Page
from pinner.model.run.journal import Entry, Run


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """An error."""

    code: str
    """The kind of error, for programs; it never changes."""
    message: str
    """A sentence for people."""
    details: Mapping[str, Any]
    """The values of the message, for programs."""
    request_id: str
    """The id of the request in the log and in the audit trail."""


@dataclass(frozen=True, slots=True)
class ErrorDocument:
    """The body of every error."""

    error: ErrorBody


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """A stored snapshot."""

    id: str
    """The SHA-256 of the snapshot's content."""
    host: str
    taken_at: datetime
    sample_seconds: float
    """The seconds over which CPU use was measured; 0: not measured."""
    cpus: int
    """The number of CPUs."""
    nodes: int
    """The number of NUMA nodes."""
    guests: int
    """The number of active guests."""
    processes: int
    """The number of processes."""
    warnings: tuple[str, ...]
    """What the agent could not read."""


@dataclass(frozen=True, slots=True)
class RunDetail:
    """A run and its changes."""

    run: Run
    entries: tuple[Entry, ...]
    """The changes; of a rollback, those of the run that it undoes."""


@dataclass(frozen=True, slots=True)
class Version:
    """A version of this API."""

    id: str
    """The name, which begins the paths of the version."""
    status: Literal["CURRENT"]
    """CURRENT: this version gets new fields."""
    path: str
    """The path of the version."""
    version: str
    """The number in the header field OpenStack-API-Version."""
    description: str
    """The path of the OpenAPI document."""
    lists: tuple[str, ...]
    """The paths of the lists."""


@dataclass(frozen=True, slots=True)
class Versions:
    """The server's release and API versions."""

    name: str
    """The name of the service: pinner."""
    release: str
    """The release of the software."""
    versions: tuple[Version, ...]
    """The versions."""


@dataclass(frozen=True, slots=True)
class Health:
    """The health of the server."""

    status: Literal["ok"]
    """ok: the server answers."""


@dataclass(frozen=True, slots=True)
class PublicCheck:
    """One check of a part of the server."""

    name: str
    """The name of the part."""
    ok: bool
    """Whether the part does its work."""


@dataclass(frozen=True, slots=True)
class Ready:
    """Whether the server can do all of its work."""

    status: State
    """ready: every check is good."""
    checks: tuple[PublicCheck, ...]
    """The checks."""


T = TypeVar("T")
PageAnswer = tuple[Page[T], int, dict[str, str]]
"""A page, its status, and its header fields."""


def page(items: Iterable[T], key: Callable[[T], str], limit: int, marker: str) -> Page[T]:
    """By key. The marker's item may have ended."""
    rest = sorted((item for item in items if key(item) > marker), key=key)
    shown = tuple(rest[:limit])
    return Page(shown, key(shown[-1]) if len(rest) > limit else "")


def linked(shown: Page[T]) -> PageAnswer[T]:
    """The header field Link (RFC 8288) is the URL of the next page."""
    if not shown.next:
        return shown, 200, {}
    query = urlencode(request.args.to_dict() | {"marker": shown.next})
    return shown, 200, {"Link": f'<{request.path}?{query}>; rel="next"'}
