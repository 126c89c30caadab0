"""No legitimate caller of the agent exceeds these limits. Every ``require_`` raises Invalid."""

import re
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from pinner.model.change import AffinityChange, Target
from pinner.model.errors import Invalid
from pinner.model.kinds import OF_GUESTS
from pinner.model.outcome import measures
from pinner.model.outcome.measures import GUEST_SERIES, HOST_SERIES, MAX_VALUES, ROWS
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request, RequestedPin
from pinner.model.policy import Drift
from pinner.model.run.journal import Run
from pinner.model.snapshot import MAX_SAMPLE_SECONDS

MAX_CHANGES = 32_768
"""The targets of one plan: 8,192 CPUs (the kernel's limit), each shared by four vCPUs."""
MAX_THREADS = 262_144
MAX_TEXT = 4096
"""Characters of a text for people."""
MAX_NAMES = 4096
"""Names in one list: each process of the host is searched in it."""
MAX_SERIES = len(GUEST_SERIES) + len(HOST_SERIES)
MAX_WAIT_SECONDS = 60.0
LATEST = datetime(9999, 1, 1, tzinfo=UTC)
"""No history ends later: its last step ends after it, and must still be a time."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}", re.ASCII)


def require_plan(plan: Plan, run: Run, host: str) -> None:
    _require_run(run, host)
    require_id("plan id", plan.id)
    if plan.host != host:
        raise Invalid("plan host", shown(plan.host), f"this host, {host}")
    if run.plan != plan.id:
        raise Invalid("run plan", shown(run.plan), f"the id of the plan, {plan.id}")
    expected = "release" if plan.is_release else "apply"
    if run.kind != expected:
        raise Invalid("run kind", run.kind, f"{expected}: the purpose of the plan is {plan.purpose}")
    if run.undoes:
        raise Invalid("run undoes", shown(run.undoes), "empty: only a rollback undoes a run")
    if plan.is_release and (run.persist or run.migrate_memory):
        raise Invalid("run persist", True, "false for a release: it changes only live affinities")
    for field, values in (("changes", plan.changes), ("wanted", plan.wanted), ("memory", plan.memory)):
        if len(values) > MAX_CHANGES:
            raise Invalid(f"plan {field}", len(values), f"at most {MAX_CHANGES} of them")
    threads = sum(len(change.before) for change in plan.changes if isinstance(change, AffinityChange))
    if threads > MAX_THREADS:
        raise Invalid("plan changes", threads, f"at most {MAX_THREADS} threads")
    _require_request(plan.request)
    _require_texts(plan)


def _require_texts(plan: Plan) -> None:
    """Those that an error of the run or an entry of the journal may have."""
    require_text("plan blocked", plan.blocked)
    for limit in chain.from_iterable(plan.basis.cpu_limits.values()):
        require_text("plan cpu_limits", limit.path)
    for change in plan.changes:
        require_text("change reason", change.reason)
        _require_target(change.target)
    for target in chain((want.target for want in plan.wanted), (memory.target for memory in plan.memory)):
        _require_target(target)


def require_rollback(run: Run, host: str) -> None:
    _require_run(run, host)
    if run.undoes:
        require_id("run undoes", run.undoes)
    if run.kind != "rollback":
        raise Invalid("run kind", run.kind, "rollback")
    if run.plan:
        require_id("run plan", run.plan)


def require_run(run: Run, host: str) -> None:
    _require_run(run, host)
    for field, value in (("run plan", run.plan), ("run undoes", run.undoes)):
        if value:
            require_id(field, value)


def require_id(field: str, value: object) -> str:
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise Invalid(field, shown(value), "1 to 64 letters, digits and _ . : - , a letter or digit first")
    return value


def cut(text: str) -> str:
    """The begin of a person's text, with each NUL shown."""
    text = text.replace("\0", "\\x00")
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 3]}..."


def require_text(field: str, value: object) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT or "\0" in value:
        raise Invalid(field, shown(value), f"a text of at most {MAX_TEXT} characters, without NUL")
    return value


def require_seconds(field: str, value: object, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:  # NaN, too
        raise Invalid(field, shown(value), f"a number of seconds from 0 to {most:g}")
    return float(value)


def require_number(field: str, value: int) -> int:
    """RFC 8785, by which heads are signed, ends where a double is exact."""
    if not 0 <= value < 1 << 53:
        raise Invalid(field, shown(value), "a number from 0 to 2^53 - 1")
    return value


def require_span(begin: datetime, end: datetime, step: int) -> None:
    """At most as many values as the history keeps, between times with a zone."""
    if step not in ROWS:
        raise Invalid("step", shown(step), f"one of {', '.join(map(str, ROWS))}")
    for field, value in (("begin", begin), ("end", end)):
        if value.tzinfo is None:
            raise Invalid(field, value.isoformat(), "a time with a time zone")
    if end > LATEST:
        raise Invalid("end", end.isoformat(), f"a time until {LATEST.isoformat()}")
    seconds, most = (end - begin).total_seconds(), step * MAX_VALUES
    if not 0 < seconds <= most:
        raise Invalid("end", end.isoformat(), f"a time after the begin, by at most {most} seconds for the step {step}")


def require_series(names: tuple[str, ...]) -> tuple[str, ...]:
    measures.require_series(tuple(require_text("series", name) for name in names))
    return names


def require_sample_seconds(value: object) -> float:
    return require_seconds("sample_seconds", value, MAX_SAMPLE_SECONDS)


def require_drifts(drifts: tuple[Drift, ...]) -> None:
    if (threads := sum(len(drift.actual) for drift in drifts)) > MAX_THREADS:
        raise Invalid("drift actual", threads, f"at most {MAX_THREADS} threads")
    for drift in drifts:
        _require_target(drift.target)
        require_text("drift detail", drift.detail)
        if any(not 0 < mask.tid < 1 << 31 for mask in drift.actual):
            raise Invalid("drift actual", "...", "ids of threads")


def _require_run(run: Run, host: str) -> None:
    require_id("run id", run.id)
    if run.host != host:
        raise Invalid("run host", shown(run.host), f"this host, {host}")


def _require_request(request: Request) -> None:
    named = "guests", "processes", "placement", "released_guests", "excluded_guests", "excluded_processes", "irq_cpus"
    require_text("request strategy", request.strategy)
    for name in named:
        values = getattr(request, name)
        if len(values) > MAX_NAMES:
            raise Invalid(f"request {name}", len(values), f"at most {MAX_NAMES} names")
        for value in values:
            require_text(f"request {name}", value.owner if isinstance(value, RequestedPin) else value)


def _require_target(target: Target) -> None:
    require_text("target name", target.name)
    require_text("target owner", target.owner)
    if target.kind in OF_GUESTS:
        require_id("target owner", target.owner)
    if target.part is not None and not 0 <= target.part < 1 << 63:
        raise Invalid("target part", target.part, "a number from 0 to 2^63 - 1")


def shown(value: Any) -> object:
    text = "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in str(value)[:80])
    return value if isinstance(value, (bool, int)) and len(text) < 20 else text
