"""The calls that an agent's server answers. Calls and arguments have the names of Agent's methods and parameters."""

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
    """Raises Invalid for an unknown call."""
    name = call.get("call")
    if not isinstance(name, str) or name not in HANDLERS:
        raise Invalid("call", str(name)[:80], f"one of {', '.join(HANDLERS)}")
    return name


def answer(agent: Agent, call: Mapping[str, Any], caller: SocketCaller) -> object:
    """Raises Invalid for an unknown call or a wrong argument, and the errors of the agent."""
    handler = HANDLERS[name_of(call)]
    set_before = peers.calling.set(caller.peer)
    try:
        return handler(agent, call, caller)
    finally:
        peers.calling.reset(set_before)


def _snapshot(agent: Agent, given: Arguments, _: SocketCaller) -> object:
    return agent.snapshot(limits.require_sample_seconds(given.get("sample_seconds")))


def _reading(agent: Agent, given: Arguments, _: SocketCaller) -> object:
    return agent.reading(limits.require_sample_seconds(given.get("sample_seconds")))


def _apply(agent: Agent, given: Arguments, caller: SocketCaller) -> object:
    document = given.get("plan")
    for name, items in document.items() if isinstance(document, dict) else ():
        _require_most(".".join(("plan", name)), items, limits.MAX_CHANGES)
    return agent.apply(_read(Plan, given, "plan"), _run_of(given, caller), caller.progress)


def _rollback(agent: Agent, given: Arguments, caller: SocketCaller) -> object:
    return agent.rollback(_run_of(given, caller), caller.progress)


def _run(agent: Agent, given: Arguments, _: SocketCaller) -> object:
    return agent.run(limits.require_id("run", given.get("run")))


def _close_run(agent: Agent, given: Arguments, caller: SocketCaller) -> object:
    return agent.close_run(_run_of(given, caller))


def _entries(agent: Agent, given: Arguments, _: SocketCaller) -> object:
    return agent.entries(limits.require_id("run", given.get("run")))


def _host_events(agent: Agent, given: Arguments, _: SocketCaller) -> object:
    names = None
    if given.get("process_names") is not None:
        names = limits.require_names(_read(tuple[str, ...], given, "process_names", limits.MAX_NAMES))
    after = limits.require_number("after", _read(int, given, "after"))
    timeout = limits.require_wait(given.get("timeout"))
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
    return agent.blame(limits.require_id("guest", given.get("guest")), min(seconds, MAX_SECONDS))


def _has_guest(agent: Agent, given: Arguments, _: SocketCaller) -> object:
    return agent.has_guest(limits.require_id("guest", given.get("guest")))


def _publish_guest_event(agent: Agent, given: Arguments, _: SocketCaller) -> None:
    guest = limits.require_id("guest", given.get("guest"))
    agent.publish_guest_event(guest, limits.cut(_read(str, given, "detail")))


def _explain(agent: Agent, given: Arguments, _: SocketCaller) -> object:
    drifts = _read(tuple[Drift, ...], given, "drifts", limits.MAX_CHANGES)
    return agent.explain_drifts(limits.require_drifts(drifts))


def _set_excluded(agent: Agent, given: Arguments, _: SocketCaller) -> None:
    agent.set_excluded(limits.require_id("guest", given.get("guest")), excluded=_read(bool, given, "excluded"))


def _audit_head(agent: Agent, given: Arguments, _: SocketCaller) -> object:
    return agent.audit_head(None if given.get("centre") is None else _read(ChainHead, given, "centre"))


def _audit_records(agent: Agent, given: Arguments, _: SocketCaller) -> object:
    return agent.audit_records(_read(int, given, "after"), _read(int, given, "limit"))


def _run_of(given: Arguments, caller: SocketCaller) -> Run:
    """The kernel says who called, whatever the message claims."""
    return replace(_read(Run, given, "run"), peer=caller.peer.label)


def _read(kind: type[T], given: Arguments, name: str, most: int | None = None) -> T:
    """Raises Invalid; also for a list of more than ``most`` items, which is not read."""
    value = given.get(name)
    if most is not None:
        _require_most(name, value, most)
    return codec.read(kind, value, name)


def _require_most(name: str, value: object, most: int) -> None:
    if isinstance(value, list) and len(value) > most:
        raise Invalid(name, len(value), f"at most {most} items")


HANDLERS: dict[str, Handler] = {
    "snapshot": _snapshot,
    "topology": lambda agent, *_: agent.topology(),
    "reading": _reading,
    "apply": _apply,
    "rollback": _rollback,
    "run": _run,
    "close_run": _close_run,
    "entries": _entries,
    "host_events": _host_events,
    "measures": _measures,
    "blame": _blame,
    "health": lambda agent, *_: agent.health(),
    "has_guest": _has_guest,
    "publish_guest_event": _publish_guest_event,
    "publish_policy_set": lambda agent, *_: agent.publish_policy_set(),
    "explain_drifts": _explain,
    "set_excluded": _set_excluded,
    "audit_head": _audit_head,
    "audit_records": _audit_records,
}
