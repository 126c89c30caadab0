"""The calls that an agent's server answers, with the names of Agent's methods and parameters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from pinner import codec
from pinner.agent import limits
from pinner.agent.protocol import Agent, Progress
from pinner.agent.socket import peers
from pinner.agent.socket.peers import Peer, steps
from pinner.model.errors import Invalid
from pinner.model.event import HostEvent
from pinner.model.outcome.blame import MAX_SECONDS
from pinner.model.plan.plan import Plan
from pinner.model.policy import Drift
from pinner.model.run.agent_audit import ChainHead
from pinner.model.run.journal import Run

T = TypeVar("T")
Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SocketCaller:
    peer: Peer
    progress: Progress


Handler = Callable[[Agent, Arguments, SocketCaller], object]


def name_of(call: Mapping[str, Any]) -> str:
    name = call.get("call")
    if not isinstance(name, str) or name not in HANDLERS:
        raise Invalid("call", str(name)[:80], f"one of {', '.join(HANDLERS)}")
    return name


def answer(agent: Agent, call: Mapping[str, Any], caller: SocketCaller) -> object:
    """Raises Invalid, and the errors of the agent."""
    handler = HANDLERS[name_of(call)]
    set_before = peers.calling.set(caller.peer)
    try:
        return handler(agent, call, caller)
    finally:
        peers.calling.reset(set_before)


def _apply(agent: Agent, given: Arguments, caller: SocketCaller) -> object:
    document = given.get("plan")
    for name, items in document.items() if isinstance(document, dict) else ():
        _require_most(".".join(("plan", name)), items, limits.MAX_CHANGES)
    return agent.apply(_read(Plan, given, "plan"), _run_of(given, caller), caller.progress)


def _host_events(agent: Agent, given: Arguments, _: SocketCaller) -> object:
    names = None
    if given.get("process_names") is not None:
        names = _read(tuple[str, ...], given, "process_names", limits.MAX_NAMES)
        for name in names:
            limits.require_text("process_names", name)
    after = limits.require_number("after", _read(int, given, "after"))
    timeout = limits.require_seconds("timeout", given.get("timeout"), limits.MAX_WAIT_SECONDS)
    events: tuple[HostEvent, ...] = ()
    # In steps, because a caller that disconnects ends its wait.
    for step in steps(timeout):
        if events := agent.host_events(after, step, names):
            break
    return events


def _measures(agent: Agent, given: Arguments, _: SocketCaller) -> object:
    begin, end, step = _read(datetime, given, "begin"), _read(datetime, given, "end"), _read(int, given, "step")
    limits.require_span(begin, end, step)
    subject = limits.require_text("subject", given["subject"]) if given.get("subject") else ""
    series: tuple[str, ...] = ()
    if given.get("series"):
        series = limits.require_series(_read(tuple[str, ...], given, "series", limits.MAX_SERIES))
    return agent.measures(begin, end, step, subject, series)


def _blame(agent: Agent, given: Arguments, _: SocketCaller) -> object:
    seconds = limits.require_sample_seconds(given.get("seconds"))
    return agent.blame(_id(given, "guest"), min(seconds, MAX_SECONDS))


def _explain_drifts(agent: Agent, given: Arguments, _: SocketCaller) -> object:
    drifts = _read(tuple[Drift, ...], given, "drifts", limits.MAX_CHANGES)
    limits.require_drifts(drifts)
    return agent.explain_drifts(drifts)


def _id(given: Arguments, name: str) -> str:
    return limits.require_id(name, given.get(name))


def _run_of(given: Arguments, caller: SocketCaller) -> Run:
    """The kernel says who called, whatever the message claims."""
    return replace(_read(Run, given, "run"), peer=caller.peer.label)


def _read(kind: type[T], given: Arguments, name: str, most: int | None = None) -> T:
    value = given.get(name)
    if most is not None:
        _require_most(name, value, most)
    return codec.read(kind, value, name)


def _require_most(name: str, value: object, most: int) -> None:
    if isinstance(value, list) and len(value) > most:
        raise Invalid(name, len(value), f"at most {most} items")


HANDLERS: dict[str, Handler] = {
    "snapshot": lambda agent, given, _: agent.snapshot(limits.require_sample_seconds(given.get("sample_seconds"))),
    "topology": lambda agent, *_: agent.topology(),
    "reading": lambda agent, given, _: agent.reading(limits.require_sample_seconds(given.get("sample_seconds"))),
    "apply": _apply,
    "rollback": lambda agent, given, caller: agent.rollback(_run_of(given, caller), caller.progress),
    "run": lambda agent, given, _: agent.run(_id(given, "run")),
    "close_run": lambda agent, given, caller: agent.close_run(_run_of(given, caller)),
    "entries": lambda agent, given, _: agent.entries(_id(given, "run")),
    "host_events": _host_events,
    "measures": _measures,
    "blame": _blame,
    "health": lambda agent, *_: agent.health(),
    "has_guest": lambda agent, given, _: agent.has_guest(_id(given, "guest")),
    "publish_guest_event": lambda agent, given, _: agent.publish_guest_event(
        _id(given, "guest"), limits.cut(_read(str, given, "detail"))
    ),
    "publish_policy_set": lambda agent, *_: agent.publish_policy_set(),
    "explain_drifts": _explain_drifts,
    "set_excluded": lambda agent, given, _: agent.set_excluded(
        _id(given, "guest"), excluded=_read(bool, given, "excluded")
    ),
    "audit_head": lambda agent, given, _: agent.audit_head(
        None if given.get("centre") is None else _read(ChainHead, given, "centre")
    ),
    "audit_records": lambda agent, given, _: agent.audit_records(
        _read(int, given, "after"), _read(int, given, "limit")
    ),
}
