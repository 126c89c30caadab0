"""/v1/hosts/{host}: a host's policy, its drift, and the exclusion of its guests."""

from apiflask import APIBlueprint
from flask import request
from pydantic import RootModel

from pinner import codec
from pinner.api.access.context import caller, pinner
from pinner.api.description.operations import CONDITIONAL, may_raise
from pinner.api.schemas.bodies import NewExclusion
from pinner.api.schemas.plan import NewPolicy
from pinner.model.errors import ApplyFailed, Gone, HostUnreachable, Invalid, NotFound, NotPermitted, PreconditionFailed
from pinner.model.guest.guest import GuestExclusion
from pinner.model.policy import DriftReport, Expected, Policy, ShownPolicy

bp = APIBlueprint("policies", __name__, tag="Policies")


@bp.get("/hosts/<host>/policy")
@bp.output(RootModel[ShownPolicy])
@bp.doc(operation_id="show_policy", extensions=may_raise(NotFound))
def show(host: str) -> tuple[ShownPolicy, int, dict[str, str]]:
    """Show a host's policy, with its revision as `ETag`; 404 if the host has none.

    `setback` says why pinner has set the mode from `enforce` to `propose`. It is no part of the revision."""
    policy = pinner().policy(host)
    return ShownPolicy.of(policy, pinner().setback(host)), 200, etag(policy)


@bp.put("/hosts/<host>/policy")
@bp.input(NewPolicy)
@bp.output(RootModel[ShownPolicy])
@bp.doc(
    operation_id="set_policy",
    extensions=may_raise(NotFound, PreconditionFailed, HostUnreachable, NotPermitted) | CONDITIONAL,
)
def set_policy(host: str, json_data: NewPolicy) -> tuple[ShownPolicy, int, dict[str, str]]:
    """Set or replace a host's policy. It takes effect within seconds.

    The host must have the CPUs that a new policy names. While the mode is `enforce`, pinner refuses changes that the
    policy would revert at once: a rollback, and plans with a different request."""
    policy = pinner().set_policy(host, json_data.policy(), caller(), expected_revisions(host))
    return ShownPolicy.of(policy, None), 200, etag(policy)


@bp.delete("/hosts/<host>/policy")
@bp.output({}, 204)
@bp.doc(operation_id="delete_policy", extensions=may_raise(NotFound, PreconditionFailed) | CONDITIONAL)
def delete_policy(host: str) -> tuple[str, int]:
    """Delete a host's policy. The placement stays as it is, and pinner no longer corrects drift."""
    pinner().delete_policy(host, caller(), expected_revisions(host))
    return "", 204


@bp.get("/hosts/<host>/drift")
@bp.output(RootModel[DriftReport])
@bp.doc(operation_id="show_drift", extensions=may_raise(NotFound, HostUnreachable, NotPermitted))
def drift(host: str) -> DriftReport:
    """Compare the recorded placement of a host with the actual affinities.

    Each difference has its cause where pinner can find it."""
    return pinner().drift(host)


@bp.put("/hosts/<host>/guests/<guest>/excluded")
@bp.input(NewExclusion)
@bp.output(RootModel[GuestExclusion])
@bp.doc(operation_id="exclude_guest", extensions=may_raise(NotFound, Gone, ApplyFailed, HostUnreachable, NotPermitted))
def set_excluded(host: str, guest: str, json_data: NewExclusion) -> GuestExclusion:
    """Exclude a guest, or include it again: pinner does not change the CPUs of an excluded guest.

    The mark is stored in the guest's metadata."""
    return pinner().set_excluded(host, guest, json_data.excluded, caller())


def etag(policy: Policy) -> dict[str, str]:
    """The header field with the revision of a policy."""
    return {"ETag": f'"{codec.content_hash(policy)}"'}


def expected_revisions(host: str) -> Expected:
    """The revisions that If-Match or If-None-Match accepts (RFC 9110, 13). Raises Invalid and PreconditionFailed."""
    match, none_match = request.headers.get("If-Match"), request.headers.get("If-None-Match")
    if none_match not in (None, "*"):
        raise Invalid("If-None-Match", none_match, "*: only where the host has no policy")
    if match is None:
        return None if none_match is None else ("",)
    if none_match is not None:
        raise PreconditionFailed(f"policy of host {host}", (match, ""), "both: If-Match and If-None-Match")
    if request.if_match.star_tag:
        return (_present(host),)
    revisions = tuple(request.if_match.as_set())
    if not all(revisions or ("",)):  # an empty revision would stand for no policy
        raise Invalid("If-Match", match, 'the ETag of the policy in quotation marks, such as "1f2e..."')
    return revisions


def _present(host: str) -> str:
    try:
        return codec.content_hash(pinner().policy(host))
    except NotFound:
        raise PreconditionFailed(f"policy of host {host}", ("any",), "") from None
