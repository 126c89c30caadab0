"""The targets of a plan's changes, as an agent's own inventory names them."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import assert_never

from pinner import codec
from pinner.model.change import AffinityChange, PlannedChange, StateChange, Target, TargetKey, boots_differ
from pinner.model.errors import Refused, StalePlan
from pinner.model.kinds import ALONE, KINDS, WITH_STATE, WITH_THREADS
from pinner.model.plan.plan import Placement, Plan, plan_id
from pinner.model.plan.request import Request
from pinner.model.settings.sysctls import SYSCTLS
from pinner.model.snapshot import Snapshot
from pinner.planning.available.states import settings
from pinner.planning.request.processes import process_target


def identified(plan: Plan, snapshot: Snapshot) -> tuple[Plan, frozenset[Target]]:
    """The plan without the wanted guests and the targets of ALONE that have ended, under the inventory's names.

    Raises Refused for a target that the inventory does not name, or that is named twice; StalePlan where a guest or a
    part of it has ended.
    """
    if boots_differ(plan.basis.boot, snapshot.boot):
        raise StalePlan(plan.id, ("the host was restarted after the plan was made",))
    inventory = inventory_of(snapshot)
    twice = next((each for each, times in Counter(c.target.key for c in plan.changes).items() if times > 1), None)
    ended: set[Target] = set()
    gone: list[str] = []
    changes: list[PlannedChange] = []
    for change in plan.changes:
        target = change.target
        if target.key == twice:
            raise refused(change, "the plan changes this target more than once")
        _require_kind(change)
        changes.append(replace(change, target=inventory.get(target.key, target)))
        if target.key in inventory:
            continue
        if target.kind == "sysctl" and target.owner not in SYSCTLS:
            raise refused(change, f"a plan changes only these sysctls: {', '.join(SYSCTLS)}")
        if target.kind in ALONE and (target.kind != "process" or _is_process_id(target)):
            ended.add(target)
        elif target.kind in WITH_STATE:
            raise refused(change, "the agent's inventory has no guest with such a cgroup, or no work queues")
        elif target.kind == "process":
            raise refused(change, "a process is named by its id and its start time")
        else:
            gone.append(f"{target} is gone")
    if gone:
        raise StalePlan(plan.id, tuple(gone))
    guests = {guest.uuid for guest in snapshot.guests}
    wanted = tuple(want for want in plan.wanted if want.target.owner in guests)
    return replace(plan, wanted=wanted, changes=tuple(changes)), frozenset(ended)


def inventory_of(snapshot: Snapshot) -> dict[TargetKey, Target]:
    def found() -> Iterator[Target]:
        for guest in snapshot.guests:
            yield from guest.threads_by_target
        yield from map(process_target, snapshot.processes)
        yield from settings(snapshot)

    return {target.key: target for target in found()}


def _require_kind(change: PlannedChange) -> None:
    kind = change.target.kind
    match change:
        case AffinityChange():
            fits = kind in WITH_THREADS
        case StateChange():
            fits = kind in WITH_STATE and all(
                isinstance(s, KINDS[kind].state or ()) for s in (change.before, change.after)
            )
        case _:
            assert_never(change)
    if not fits:
        raise refused(change, f"a {kind} has no {change.kind} of this form")


def _is_process_id(target: Target) -> bool:
    return target.part is not None and target.owner.isascii() and target.owner.isdecimal() and len(target.owner) <= 10


def refused(change: PlannedChange, why: str) -> Refused:
    match change:
        case AffinityChange():
            wanted = f"CPUs {change.after}"
        case StateChange():
            wanted = f"the state '{change.after}'"
        case _:
            assert_never(change)
    return Refused(str(change.target), wanted, why)


def id_of(snapshot_id: str, request: Request) -> str:
    return plan_id(snapshot_id.encode(), codec.dump(request))


def id_from_placement(
    snapshot_id: str, request: Request, placement: Placement | None, excluded_keys: Iterable[str]
) -> str:
    recorded = codec.dump(placement) if placement else b""
    return plan_id(snapshot_id.encode(), codec.dump(request), recorded, *map(str.encode, excluded_keys))
