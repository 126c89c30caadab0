"""The calls that an agent's server answers, by name.

Each handler reads its arguments, calls the agent and returns a value that the codec can write. A call has the name of
the method of Agent, and its arguments have the names of the method's parameters.
"""

from collections.abc import Callable, Mapping
from typing import Any

from pinner import codec
from pinner.agent.protocol import Agent, Progress
from pinner.model.drift import Drift
from pinner.model.errors import Invalid
from pinner.model.journal import Run
from pinner.model.plan import Plan

Arguments = Mapping[str, Any]
Handler = Callable[[Agent, Arguments, Progress], object]


def answer(agent: Agent, call: Mapping[str, Any], progress: Progress) -> object:
    """The result of a call. Raises Invalid for an unknown call or a wrong argument, and the errors of the agent."""
    name = call.get("call")
    handler = HANDLERS.get(name) if isinstance(name, str) else None
    if handler is None:
        raise Invalid("call", name, f"one of {', '.join(HANDLERS)}")
    return handler(agent, call, progress)


def _snapshot(agent: Agent, given: Arguments, _: Progress) -> object:
    return agent.snapshot(float(given["sample_seconds"]))


def _apply(agent: Agent, given: Arguments, progress: Progress) -> object:
    return agent.apply(codec.read(Plan, given["plan"]), codec.read(Run, given["run"]), progress)


def _rollback(agent: Agent, given: Arguments, progress: Progress) -> object:
    return agent.rollback(codec.read(Run, given["run"]), progress)


def _run(agent: Agent, given: Arguments, _: Progress) -> object:
    return agent.run(str(given["run"]))


def _entries(agent: Agent, given: Arguments, _: Progress) -> object:
    return _plain(agent.entries(str(given["run"])))


def _host_events(agent: Agent, given: Arguments, _: Progress) -> object:
    names = codec.read(tuple[str, ...], given["process_names"])
    return _plain(agent.host_events(int(given["after"]), float(given["timeout"]), names))


def _has_guest(agent: Agent, given: Arguments, _: Progress) -> object:
    return agent.has_guest(str(given["guest"]))


def _publish_guest_event(agent: Agent, given: Arguments, _: Progress) -> None:
    agent.publish_guest_event(str(given["guest"]), str(given["detail"]))


def _publish_policy_set(agent: Agent, _given: Arguments, _: Progress) -> None:
    agent.publish_policy_set()


def _explain(agent: Agent, given: Arguments, _: Progress) -> object:
    return _plain(agent.explain(codec.read(tuple[Drift, ...], given["drifts"])))


def _set_excluded(agent: Agent, given: Arguments, _: Progress) -> None:
    agent.set_excluded(str(given["guest"]), excluded=codec.read(bool, given["excluded"]))


def _plain(values: tuple[object, ...]) -> list[object]:
    return [codec.plain(value) for value in values]


HANDLERS: dict[str, Handler] = {
    "snapshot": _snapshot,
    "apply": _apply,
    "rollback": _rollback,
    "run": _run,
    "entries": _entries,
    "host_events": _host_events,
    "has_guest": _has_guest,
    "publish_guest_event": _publish_guest_event,
    "publish_policy_set": _publish_policy_set,
    "explain": _explain,
    "set_excluded": _set_excluded,
}
"""Every method of Agent."""
