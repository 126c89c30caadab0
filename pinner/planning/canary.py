"""The plan that a policy probes before it makes a kind of change that is new on a host. Pure."""

from collections.abc import Collection, Mapping
from types import MappingProxyType

from pinner.model.change import PlannedChange, TargetKey
from pinner.model.groups import Group, are_independent, group_of
from pinner.model.placement import Placement
from pinner.model.plan import Plan
from pinner.model.snapshot import Snapshot
from pinner.model.trial import ChangeKind, change_kind
from pinner.planning.leaving_out import leave_out

_NOT_PROBED = "the plan is probed on one guest first"


def untested(plan: Plan, tested: Collection[ChangeKind]) -> tuple[PlannedChange, ...]:
    """The changes of a plan that nobody has tested; with a change of the host itself, which is made for all targets,
    either none or all of them."""
    found = tuple(change for change in plan.changes if change_kind(change.target) not in tested)
    return plan.changes if found and not are_independent(plan.changes) else found


def canary_plan(
    plan: Plan,
    probed: Collection[TargetKey],
    uses: Mapping[str, float],
    placement: Placement | None,
    snapshot: Snapshot,
    failures: Mapping[Group, int] = MappingProxyType({}),
) -> Plan:
    """The plan with the changes of the ``probed`` targets only, and of these guests only those of one: the guest that
    failed least often (``failures``), of these the guest with the highest CPU use (``uses``, by UUID), and of equal
    ones the first by UUID. ``snapshot`` is the one from which the plan was made.

    A guest that needs the CPU of another guest cannot be moved alone. Where that is so for each guest, and where the
    plan changes the host itself, the plan has the changes of all guests.
    """
    others = {each.target.key: _NOT_PROBED for each in plan.changes if each.target.key not in probed}
    whole = leave_out(plan, others, placement, snapshot)
    if not are_independent(whole.changes):
        return whole
    groups = {group_of(each.target): each.target.owner for each in whole.changes if _is_of_a_guest(each)}
    for group in sorted(groups, key=lambda each: (failures.get(each, 0), -uses.get(groups[each], 0.0), groups[each])):
        beside = {
            each.target.key: _NOT_PROBED
            for each in whole.changes
            if _is_of_a_guest(each) and group_of(each.target) != group
        }
        alone = leave_out(plan, others | beside, placement, snapshot)
        if any(group_of(each.target) == group for each in alone.changes):
            return alone
    return whole


def _is_of_a_guest(change: PlannedChange) -> bool:
    return change_kind(change.target) == "guests"
