"""Plans that cure findings and leave guests and processes where they are."""

from collections.abc import Iterator
from dataclasses import fields, replace

from pinner.model.plan.plan import Basis, Plan, Roles
from pinner.model.plan.request import Request
from pinner.model.snapshot import emulator_cpus, vcpu_cpus
from pinner.planning.request.context import Context


def with_requested(plan: Plan, context: Context) -> Plan:
    """Adds the settings for which the request asks. Raises Invalid."""
    if not plan.request.remedies and not plan.request.fix:
        return plan
    # Imported here, because few requests ask for one of them.
    from pinner.planning.settings import table

    return table.with_remedies(plan, context)


def curing(context: Context, snapshot_id: str, name: str, blocked: str) -> Plan:
    """Raises Invalid."""
    snapshot = context.snapshot
    plan = Plan(
        id=name,
        host=snapshot.host,
        request=context.request,
        basis=Basis(snapshot_id, snapshot.taken_at, snapshot.topology.fingerprint, snapshot.boot),
        roles=_roles_now(context),
        wanted=(),
        changes=(),
        unplaced=(),
        skipped=(),
        warnings=(*snapshot.warnings, *_without_effect(context.request)),
        blocked=blocked,
    )
    return with_requested(plan, context)


def with_roles_now(plan: Plan, context: Context) -> Plan:
    """A plan that cures findings gets the roles that its changes may rely on, whatever it says."""
    return replace(plan, roles=_roles_now(context)) if plan.request.fix else plan


def _roles_now(context: Context) -> Roles:
    """As placed guests use the CPUs now; the others are the host's."""
    snapshot, allocatable = context.snapshot, context.allocatable
    vcpus = vcpu_cpus(snapshot)
    emulators = emulator_cpus(snapshot) - vcpus
    return Roles(allocatable.online - vcpus - emulators - allocatable.reserved, emulators, vcpus)


def _without_effect(request: Request) -> Iterator[str]:
    unset = Request()
    for field in fields(Request):
        value = getattr(request, field.name)
        if field.name not in ("fix", "remedies") and value != getattr(unset, field.name):
            yield f"{field.name} {value!r} has no effect: a plan with fix moves no guest and no process"
