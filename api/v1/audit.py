"""/v1/audit: who did what, and whether the trail is whole."""

from apiflask import APIBlueprint
from pydantic import RootModel

from pinner.api.context import pinner
from pinner.api.openapi import failing
from pinner.api.schemas import AuditQuery
from pinner.model.audit import AuditRecord, Verification
from pinner.model.errors import NotFound
from pinner.model.page import Page

bp = APIBlueprint("audit", __name__, tag="Audit")


@bp.get("/audit")
@bp.input(AuditQuery, location="query")
@bp.output(RootModel[Page[AuditRecord]])
@bp.doc(extensions=failing(NotFound))
def listing(query_data: AuditQuery) -> Page[AuditRecord]:
    """The audit trail, newest first."""
    return pinner().audit(query_data.host, query_data.actor, query_data.since, query_data.limit, query_data.marker)


@bp.get("/audit/verify")
@bp.output(RootModel[Verification])
def verify() -> Verification:
    """Check the chain of hashes from the first record to the last."""
    return pinner().verify_audit()
