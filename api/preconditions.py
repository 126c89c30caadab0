"""Conditional requests (RFC 9110, section 13): two clients that change one policy do not overwrite each other."""

from flask import request

from pinner import codec
from pinner.api.access.context import pinner
from pinner.model.errors import Invalid, NotFound, PreconditionFailed
from pinner.model.policy.policy import Expected, Policy


def etag(policy: Policy) -> dict[str, str]:
    """The header field with the revision of a policy."""
    return {"ETag": f'"{codec.content_hash(policy)}"'}


def expected_revisions(host: str) -> Expected:
    """The revisions that the request's If-Match or If-None-Match accepts. Raises Invalid and PreconditionFailed."""
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
