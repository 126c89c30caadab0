"""Every kind with a state."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import import_module

from pinner.model.change import StateChange, Target
from pinner.model.errors import Invalid
from pinner.model.kinds import INSIDE, KINDS, WITH_STATE, TargetKind
from pinner.model.plan.plan import Plan
from pinner.model.states import State
from pinner.planning.changes import changes
from pinner.planning.request.context import Context
from pinner.planning.settings.row import PlanRow


def _row(kind: TargetKind) -> PlanRow:
    row = getattr(import_module(f"{__package__}.{KINDS[kind].path.replace('/', '.')}"), "ROW", None)
    if not isinstance(row, PlanRow) or (row.additions is None) != (KINDS[kind].remedy is None):
        raise TypeError(f"planning/settings/{KINDS[kind].path}.py needs a ROW, with additions for a setting")
    return row


ROWS: Mapping[TargetKind, PlanRow] = {kind: _row(kind) for kind in WITH_STATE}
"""In the order of a plan's changes."""


def with_remedies(plan: Plan, context: Context) -> Plan:
    """Raises Invalid where the snapshot lacks what the request asks for. These changes come first: interrupts leave the
    CPUs before guests get them. Those inside guests come last: nothing should wait for a guest."""
    for label, row in reversed(tuple(ROWS.items())):
        kind = KINDS[label]
        if row.additions is None or kind.remedy is None or not plan.request.asks_for(kind.remedy):
            continue
        if getattr(context.snapshot, kind.module) is None:
            raise Invalid("with", kind.remedy, row.expected)
        added = row.additions(plan, context)
        needed = changes(context, added.wanted)
        plan = replace(
            plan,
            changes=(*plan.changes, *needed) if label in INSIDE else (*needed, *plan.changes),
            wanted=(*plan.wanted, *added.wanted),
            skipped=(*plan.skipped, *added.skipped),
            warnings=tuple(dict.fromkeys((*plan.warnings, *added.warnings))),
        )
    return plan


def objection(change: StateChange, plan: Plan, context: Context) -> str:
    remedy, row = KINDS[change.target.kind].remedy, ROWS[change.target.kind]
    if remedy is not None and not plan.request.asks_for(remedy):
        return f"the plan's request does not ask for {row.noun}"
    return row.objection(change, plan, context)


def commands(target: Target, state: State) -> Iterator[str]:
    return ROWS[target.kind].commands(target, state)
