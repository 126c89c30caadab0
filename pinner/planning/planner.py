"""Makes a plan from a snapshot and a request: ``build`` has the whole flow."""

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
    """The plan of a request; without changes if nothing is to be done.

    ``snapshot_id`` is the snapshot's content hash; ``strategies`` None: the installed ones. Raises NotFound for an
    unknown strategy, guest or process; Invalid for a parameter that this host cannot have; NoFit where no CPU is left
    for vCPUs.
    """
    require_known(request.strategy, known := installed() if strategies is None else strategies)
    return build(known, Context.of(snapshot, request), snapshot_id, id_of(snapshot_id, request))


def plan_from_placement(snapshot: Snapshot, snapshot_id: str, request: Request, placement: Placement | None) -> Plan:
    """The plan that makes the host match the request, from the recorded placement of the same request.

    Recorded CPUs stay, and recorded daemons are placed without being measured. A new guest moves at most two others.
    Guests and processes that the request names need not exist. Raises NotFound for an unknown strategy; Invalid and
    NoFit like ``plan``.
    """
    context = Context.of(snapshot, request, placement, lenient=True)
    strategies = installed()
    require_known(request.strategy, strategies)
    return build(strategies, context, snapshot_id, id_from_placement(snapshot_id, request, placement, ()))


def repack(snapshot: Snapshot, snapshot_id: str, request: Request, placement: Placement) -> Plan:
    """``plan_from_placement``, with moves of guest after guest to free CPUs as long as that lowers the objective."""
    context = Context.of(snapshot, request, placement, lenient=True)
    strategies = installed()
    require_known(request.strategy, strategies)
    name = id_from_placement(snapshot_id, request, placement, ("repack",))
    return build(strategies, context, snapshot_id, name, repacks=True)


def require_possible(snapshot: Snapshot, request: Request) -> None:
    """Raises NotFound, Invalid or NovaConflict where the host can never follow a policy with this request.

    Unplaced guests, and named processes that do not run now, are no error. A guest that comes later is named by its
    UUID.
    """
    require_known_guests(snapshot, request.guests, by_uuid=True)
    require_threshold(snapshot, request)
    with suppress(NoFit):
        plan_from_placement(snapshot, "", request, None)


def build(
    strategies: Mapping[str, Strategy], context: Context, snapshot_id: str, name: str, *, repacks: bool = False
) -> Plan:
    """Every stage of planning. ``strategies`` has the request's, and those that flavors may ask for. ``repacks``:
    guests also move without a new one."""
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
