"""/v1/audit: the audit trail and the check of its hashes."""

from apiflask import APIBlueprint
from pydantic import RootModel

from pinner.api.context import pinner
from pinner.api.openapi import may_raise
from pinner.api.schemas import AuditQuery
from pinner.model.audit import AuditRecord, Verification
from pinner.model.errors import NotFound
from pinner.model.page import Page

bp = APIBlueprint("audit", __name__, tag="Audit")


@bp.get("/audit")
@bp.input(AuditQuery, location="query")
@bp.output(RootModel[Page[AuditRecord]])
@bp.doc(extensions=may_raise(NotFound))
def listing(query_data: AuditQuery) -> Page[AuditRecord]:
    """List the records of the audit trail, newest first."""
    return pinner().audit(query_data.host, query_data.actor, query_data.since, query_data.limit, query_data.marker)


@bp.get("/audit/verify")
@bp.output(RootModel[Verification])
def verify() -> Verification:
    """Check the hash chain of the audit trail from the first record to the last.

    The answer says whether a record was changed, removed or reordered.
    """
    return pinner().verify_audit()
