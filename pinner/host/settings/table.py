"""Reads and sets states by the kind of the target."""

from collections.abc import Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from pinner.host.settings.inside.agent import Agents
from pinner.host.settings.inside.guests import Question
from pinner.host.settings.row import Access, Facts, HostRow
from pinner.model.change import Target
from pinner.model.errors import Invalid
from pinner.model.kinds import KINDS, WITH_STATE, TargetKind
from pinner.model.states import State


def _row(kind: TargetKind) -> HostRow[Any]:
    row = getattr(import_module(f"{__package__}.{KINDS[kind].path.replace('/', '.')}"), "ROW", None)
    if not isinstance(row, HostRow) or ((row.read or row.inside) is None) != (KINDS[kind].remedy is None):
        raise TypeError(f"host/settings/{KINDS[kind].path}.py needs a ROW, with read or inside for a setting")
    return row


ROWS: Mapping[TargetKind, HostRow[Any]] = {kind: _row(kind) for kind in WITH_STATE}


def state_of(root: Path, target: Target, agents: Agents | None = None) -> State:
    state: State = _row_of(target).state(Access(root, agents), target)
    return state


def set_state(root: Path, target: Target, state: State, agents: Agents | None = None) -> None:
    """Raises like HostRow, and Invalid for another kind's state."""
    row, expected = _row_of(target), KINDS[target.kind].state
    if expected is None or not isinstance(state, expected):
        raise Invalid("state", f"{state!r} of {target}"[:80], f"a state of the kind {target.kind}")
    row.set_state(Access(root, agents), target, state)


def read(facts: Facts, only: Collection[TargetKind]) -> dict[str, Any]:
    rows = {kind: row for kind, row in ROWS.items() if kind in only}
    questions: dict[str, Question] = {kind: row.inside for kind, row in rows.items() if row.inside}
    answers = facts.ask_guests(facts.guests, questions) if facts.ask_guests and questions else {}
    return {KINDS[kind].module: row.read(facts) for kind, row in rows.items() if row.read} | {
        KINDS[kind].module: answers.get(kind) for kind, row in rows.items() if row.inside
    }


def _row_of(target: Target) -> HostRow[Any]:
    if target.kind not in ROWS:
        raise Invalid("target", str(target)[:80], "a target that has a state")
    return ROWS[target.kind]
