"""/v1/audit: the audit trail and the check of its hashes."""

from apiflask import APIBlueprint
from pydantic import RootModel

from pinner.api.context import pinner
from pinner.api.operations import may_raise
from pinner.api.paging import PageAnswer, linked
from pinner.api.schemas import AuditQuery
from pinner.model.audit import AuditRecord, Verification
from pinner.model.errors import NotFound
from pinner.model.page import Page

bp = APIBlueprint("audit", __name__, tag="Audit")


@bp.get("/audit")
@bp.input(AuditQuery, location="query")
@bp.output(RootModel[Page[AuditRecord]])
@bp.doc(operation_id="list_audit_records", extensions=may_raise(NotFound))
def listing(query_data: AuditQuery) -> PageAnswer[AuditRecord]:
    """List the records of the audit trail."""
    query = query_data
    found = pinner().audit(query.host, query.actor, query.since, query.limit, query.marker, direction=query.sort_dir)
    return linked(found)


@bp.get("/audit/verify")
@bp.output(RootModel[Verification])
@bp.doc(operation_id="verify_audit")
def verify() -> Verification:
    """Check the hash chain of the audit trail from the first record to the last.

    The answer says whether a record was changed, removed or reordered.
    """
    return pinner().verify_audit()
