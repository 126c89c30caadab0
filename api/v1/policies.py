"""/v1/hosts/{host}/policy and drift: what is to hold on a host, and what does not."""

from apiflask import APIBlueprint
from pydantic import RootModel

from pinner.api.context import caller, pinner
from pinner.api.openapi import failing
from pinner.api.schemas import NewExclusion, NewPolicy
from pinner.model.drift import DriftReport
from pinner.model.errors import ApplyFailed, Gone, HostUnreachable, NotFound, NotPermitted
from pinner.model.policy import Policy
from pinner.service.protocol import GuestExclusion

bp = APIBlueprint("policies", __name__, tag="Policies")


@bp.get("/hosts/<host>/policy")
@bp.output(RootModel[Policy])
@bp.doc(extensions=failing(NotFound))
def show(host: str) -> Policy:
    """A host's policy; 404 where it has none."""
    return pinner().policy(host)


@bp.put("/hosts/<host>/policy")
@bp.input(NewPolicy)
@bp.output(RootModel[Policy])
@bp.doc(extensions=failing(NotFound))
def put(host: str, json_data: NewPolicy) -> Policy:
    """Give a host a policy in place of the one that it has; it is heeded within seconds.

    While it is enforced, what it would take back at once is refused: a rollback, and plans of another request.
    """
    return pinner().set_policy(host, json_data.policy(), caller())


@bp.get("/hosts/<host>/drift")
@bp.output(RootModel[DriftReport])
@bp.doc(extensions=failing(NotFound, HostUnreachable, NotPermitted))
def drift(host: str) -> DriftReport:
    """What stands on a host against what its kernel says now, with the cause where it can be known."""
    return pinner().drift(host)


@bp.put("/hosts/<host>/guests/<guest>/excluded")
@bp.input(NewExclusion)
@bp.output(RootModel[GuestExclusion])
@bp.doc(extensions=failing(NotFound, Gone, ApplyFailed, HostUnreachable, NotPermitted))
def excluded(host: str, guest: str, json_data: NewExclusion) -> GuestExclusion:
    """Write into a guest's metadata whether its CPUs are to be left alone."""
    return pinner().set_excluded(host, guest, json_data.excluded, caller())
