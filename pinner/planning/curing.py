"""A plan that only cures findings: its remedies move no guest and no process."""

from collections.abc import Iterator
from dataclasses import fields

from pinner.model.errors import Invalid
from pinner.model.guest.nova import NovaSets, configured
from pinner.model.plan.plan import Basis, Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning.request.context import Context, roles_now


def make(context: Context, snapshot_id: str, name: str) -> Plan:
    snapshot = context.snapshot
    plan = Plan(
        id=name,
        host=snapshot.host,
        request=context.request,
        basis=Basis(snapshot_id, snapshot.taken_at, snapshot.topology.fingerprint, snapshot.boot),
        roles=roles_now(context),
        wanted=(),
        changes=(),
        unplaced=(),
        skipped=(),
        warnings=(*snapshot.warnings, *_without_effect(context.request)),
        blocked=nova_unknown(snapshot),
    )
    return with_requested(plan, context)


def with_requested(plan: Plan, context: Context) -> Plan:
    if not plan.request.remedies and not plan.request.fix:
        return plan
    # Imported here, because few requests ask for one of them.
    from pinner.planning.settings import table

    return table.with_remedies(plan, context)


def nova_unknown(snapshot: Snapshot) -> str:
    try:
        novas = [guest.name for guest in snapshot.guests if guest.nova is not None]
        configured(NovaSets(snapshot.dedicated, snapshot.shared), snapshot.nova, novas)
    except Invalid as error:
        return (
            f"pinner cannot determine which CPUs Nova owns: {error}; correct that, or set cpu_dedicated_set and "
            "cpu_shared_set in [nova] of pinner.conf"
        )
    return ""


def _without_effect(request: Request) -> Iterator[str]:
    unset = Request()
    for field in fields(Request):
        value = getattr(request, field.name)
        if field.name not in ("fix", "remedies", "irq_cpus") and value != getattr(unset, field.name):
            yield f"{field.name} {value!r} has no effect: a plan with fix moves no guest and no process"
