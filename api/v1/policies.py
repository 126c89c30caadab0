"""/v1/hosts/{host}: a host's policy, its drift, and the exclusion of its guests."""

from apiflask import APIBlueprint
from pydantic import RootModel

from pinner.api.context import caller, pinner
from pinner.api.openapi import may_raise
from pinner.api.schemas import NewExclusion, NewPolicy
from pinner.model.drift import DriftReport
from pinner.model.errors import ApplyFailed, Gone, HostUnreachable, NotFound, NotPermitted
from pinner.model.policy import Policy
from pinner.service.protocol import GuestExclusion

bp = APIBlueprint("policies", __name__, tag="Policies")


@bp.get("/hosts/<host>/policy")
@bp.output(RootModel[Policy])
@bp.doc(extensions=may_raise(NotFound))
def show(host: str) -> Policy:
    """Show a host's policy; 404 if the host has none."""
    return pinner().policy(host)


@bp.put("/hosts/<host>/policy")
@bp.input(NewPolicy)
@bp.output(RootModel[Policy])
@bp.doc(extensions=may_raise(NotFound))
def set_policy(host: str, json_data: NewPolicy) -> Policy:
    """Set or replace a host's policy. It takes effect within seconds.

    While the mode is `enforce`, pinner refuses changes that the policy would revert at once: a rollback, and plans with
    a different request.
    """
    return pinner().set_policy(host, json_data.policy(), caller())


@bp.get("/hosts/<host>/drift")
@bp.output(RootModel[DriftReport])
@bp.doc(extensions=may_raise(NotFound, HostUnreachable, NotPermitted))
def drift(host: str) -> DriftReport:
    """Compare the recorded placement of a host with the actual affinities.

    Each difference has its cause where pinner can find it.
    """
    return pinner().drift(host)


@bp.put("/hosts/<host>/guests/<guest>/excluded")
@bp.input(NewExclusion)
@bp.output(RootModel[GuestExclusion])
@bp.doc(extensions=may_raise(NotFound, Gone, ApplyFailed, HostUnreachable, NotPermitted))
def set_excluded(host: str, guest: str, json_data: NewExclusion) -> GuestExclusion:
    """Exclude a guest, or include it again: pinner does not change the CPUs of an excluded guest.

    The mark is stored in the guest's metadata.
    """
    return pinner().set_excluded(host, guest, json_data.excluded, caller())
