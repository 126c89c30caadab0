"""/v1/audit: the audit trail, its verification, its anchor and its export."""

from apiflask import APIBlueprint
from flask import Response
from pydantic import RootModel

from pinner.api.access.context import pinner
from pinner.api.description.operations import TEXT, may_raise, media_type
from pinner.api.schemas.answers import PageAnswer, linked
from pinner.api.schemas.bodies import AnchorInput
from pinner.api.schemas.queries import AuditQuery
from pinner.model.errors import HostUnreachable, NotFound
from pinner.model.page import Page
from pinner.model.run.agent_audit import Anchor
from pinner.model.run.audit import AuditRecord
from pinner.model.run.verification import Verification

bp = APIBlueprint("audit", __name__, tag="Audit")
LINES = "text/plain"
"""JSON, one value a line; it has no registered media type."""


@bp.get("/audit")
@bp.input(AuditQuery, location="query")
@bp.output(RootModel[Page[AuditRecord]])
@bp.doc(operation_id="list_audit_records", extensions=may_raise(NotFound))
def listing(query_data: AuditQuery) -> PageAnswer[AuditRecord]:
    """List the records of the audit trail."""
    return linked(pinner().audit(query_data.host, query_data.actor, query_data.since, query_data.part()))


@bp.get("/audit/verify")
@bp.output(RootModel[Verification])
@bp.doc(operation_id="verify_audit")
def verify() -> Verification:
    """Verify the audit trail.

    The centre's chain of hashes and each agent's signed chain are checked, also against each other. The findings name
    what was changed, cut off, forged or never reported.
    """
    return pinner().verify_audit()


@bp.post("/audit/verify")
@bp.input(AnchorInput)
@bp.output(RootModel[Verification], 200)
@bp.doc(operation_id="verify_audit_with_anchor")
def verify_anchor(json_data: AnchorInput) -> Verification:
    """Verify the audit trail against an anchor.

    Like GET, but both trails must also contain the heads of the anchor. Nothing is changed.
    """
    return pinner().verify_audit(json_data.value())


@bp.get("/audit/anchor")
@bp.output(RootModel[Anchor])
@bp.doc(operation_id="show_audit_anchor", extensions=may_raise(NotFound, HostUnreachable))
def anchor() -> Anchor:
    """Make an anchor: the signed heads of the agents' trails, which contain the head of the centre's trail.

    Keep it elsewhere. A later verification shows whether the trails still contain everything up to it.
    """
    return pinner().audit_anchor()


@bp.get("/audit/export")
@bp.doc(operation_id="export_audit", responses=media_type(LINES, TEXT), extensions=may_raise(NotFound, HostUnreachable))
def export() -> Response:
    """Export the trails of the centre and of the agents with all signed heads.

    `pinner audit verify --file` verifies the export without a server.
    """
    return Response(pinner().export_audit(), content_type=f"{LINES}; charset=utf-8")
