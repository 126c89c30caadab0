"""Makes a plan from a snapshot and a request. Pure: the same snapshot and request always give the same plan.

``build`` has the whole flow; planning/stages.py has its stages.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from pinner.model.errors import NoFit
from pinner.model.plan.placement import Placement
from pinner.model.plan.plan import Basis, Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.available.exclusions import require_known_guests
from pinner.planning.available.reservations import contested
from pinner.planning.changes.plan_identity import id_from_placement, id_of
from pinner.planning.request.context import Context
from pinner.planning.request.processes import require_threshold
from pinner.planning.settings.fixes import curing, with_remedies
from pinner.planning.stages import Stages, nova_unknown
from pinner.planning.strategies.strategy import Strategy, installed, require_known


def plan(
    snapshot: Snapshot,
    snapshot_id: str,
    request: Request,
    strategies: Mapping[str, Strategy] | None = None,
) -> Plan:
    """The plan of a request for a host.

    ``snapshot_id`` is the snapshot's content hash, ``strategies`` the available strategies by name (None: the
    installed ones). If nothing is to be done, the plan has no changes. Raises NotFound for an unknown strategy, guest
    or process; Invalid for a parameter that this host cannot have; NoFit where no CPU is left for vCPUs.
    """
    require_known(request.strategy, known := installed() if strategies is None else strategies)
    return build(known, Context.of(snapshot, request), snapshot_id, id_of(snapshot_id, request))


def plan_from_placement(snapshot: Snapshot, snapshot_id: str, request: Request, placement: Placement | None) -> Plan:
    """The plan that makes the host match the request, starting from the recorded placement of the same request.

    The recorded CPUs of roles and guests stay, and recorded daemons are placed again without being measured. The
    strategy places a new guest; if there is no room, the strategy moves at most two other guests. Without a recorded
    placement (None) the plan is made like any other. Guests and processes that the request names need not exist.
    Raises NotFound for an unknown strategy; Invalid and NoFit like ``plan``.
    """
    context = Context.of(snapshot, request, placement, lenient=True)
    strategies = installed()
    require_known(request.strategy, strategies)
    return build(strategies, context, snapshot_id, id_from_placement(snapshot_id, request, placement, ()))


def repack(snapshot: Snapshot, snapshot_id: str, request: Request, placement: Placement) -> Plan:
    """The plan of ``plan_from_placement``, and then moves of guest after guest to CPUs that are free then, as long as
    that lowers the objective. Raises like ``plan_from_placement``."""
    context = Context.of(snapshot, request, placement, lenient=True)
    strategies = installed()
    require_known(request.strategy, strategies)
    name = id_from_placement(snapshot_id, request, placement, ("repack",))
    return build(strategies, context, snapshot_id, name, repacks=True)


def require_possible(snapshot: Snapshot, request: Request) -> None:
    """Raises an error where the host can never follow a policy with this request.

    NotFound: the policy names an unknown strategy, or a guest that libvirt does not know. A guest that comes later, for
    instance by a migration, is named by its UUID. Invalid and NovaConflict: the policy names CPUs that the host lacks
    or that Nova owns, or a threshold that no process can exceed. A policy is possible if it only leaves guests unplaced
    now, or names guests and processes that do not run now: these start and stop.
    """
    require_known_guests(snapshot, request.guests, by_uuid=True)
    require_threshold(snapshot, request)
    with suppress(NoFit):
        plan_from_placement(snapshot, "", request, None)


def build(
    strategies: Mapping[str, Strategy], context: Context, snapshot_id: str, name: str, *, repacks: bool = False
) -> Plan:
    """The plan with the id ``name``: every stage of planning, in order. Raises like ``plan``.

    ``strategies`` has the request's strategy, and those that flavors may request. ``repacks``: guests also move without
    a new guest.
    """
    snapshot, request = context.snapshot, context.request
    if request.fix:
        return curing(context, snapshot_id, name, nova_unknown(snapshot))
    stages = Stages.of(context, strategies)
    choice = stages.choose(stages.place())
    measured, moves = stages.improve(choice.chosen, repacks=repacks)
    answer = measured.answer
    diff = stages.diff(measured, choice.staying)
    plan = Plan(
        id=name,
        host=snapshot.host,
        request=request,
        basis=Basis(snapshot_id, snapshot.taken_at, snapshot.topology.fingerprint, snapshot.boot),
        roles=answer.roles,
        wanted=answer.wanted,
        changes=diff.changes,
        unplaced=answer.unplaced,
        skipped=context.skipped,
        warnings=stages.warn(measured, diff),
        objective=diff.objective,
        isolation=answer.isolation,
        blocked=stages.block(answer),
        memory=diff.memory,
        rebalance=choice.rebalance,
        moves=moves,
        optimality=answer.optimality,
    )
    return with_remedies(replace(plan, contested=contested(plan, snapshot)), context)
