"""The audit events of a run, as an agent appends them to its chain."""

from dataclasses import replace
from datetime import datetime

from pinner.model.run.agent_audit import AgentAction, AgentEvent
from pinner.model.run.audit import RECOVERY
from pinner.model.run.change_text import change_text, entry_result, run_options, run_result
from pinner.model.run.journal import Entry, Run, RunKind

ALL_RUNS = "all runs"
"""The target of a rollback of all runs, in both trails."""

_BEGIN: dict[RunKind, AgentAction] = {
    "apply": AgentAction.RUN_APPLY,
    "rollback": AgentAction.RUN_ROLLBACK,
    "release": AgentAction.RUN_RELEASE,
}


def begun(run: Run) -> AgentEvent:
    return _begin(run, "started", run.started_at)


def refused(run: Run, code: str, at: datetime) -> AgentEvent:
    """``code`` is the error's."""
    return _begin(run, f"refused: {code}", at)


def changed(run: Run, entry: Entry) -> AgentEvent:
    before, after = change_text(entry.change, run.kind)
    target, result = str(entry.change.target), entry_result(entry)
    return _event(run, entry.at, AgentAction.RUN_CHANGE, target, result, before=before, after=after)


def ended(run: Run) -> list[AgentEvent]:
    """If its process had died, a recovery ended it."""
    at = run.ended_at or run.started_at
    recovered = [_event(replace(run, actor=RECOVERY, peer=""), at, AgentAction.RUN_RECOVER, "", run.recovered)]
    return [*(recovered if run.recovered else ()), _event(run, at, AgentAction.RUN_END, "", run_result(run))]


def _begin(run: Run, result: str, at: datetime) -> AgentEvent:
    after = "" if run.kind == "rollback" else run_options(run)
    target = ALL_RUNS if run.undoes_all else run.undoes or run.plan
    return _event(run, at, _BEGIN[run.kind], target, result, after=after)


def _event(
    run: Run,
    at: datetime,
    action: AgentAction,
    target: str,
    result: str,
    *,
    before: str = "",
    after: str = "",
) -> AgentEvent:
    return AgentEvent(at, run.id, action, target, before, after, result, run.actor, run.peer)
