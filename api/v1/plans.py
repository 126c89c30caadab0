"""/v1/plans: make, show, list and apply plans."""

from apiflask import APIBlueprint
from flask import Response, request
from pydantic import RootModel

from pinner.api.access.context import app_state, caller, pinner, require_own_host
from pinner.api.description.operations import HEADERS, IF_CHANGED, NOT_MODIFIED, TEXT, links, may_raise, media_type
from pinner.api.schemas.answers import PageAnswer, linked
from pinner.api.schemas.bodies import NewApply
from pinner.api.schemas.plan import NewPlan
from pinner.api.schemas.queries import ExplanationQuery, HostPageQuery, PlanQuery
from pinner.model.errors import (
    ApplyFailed,
    Blocked,
    Gone,
    HostBusy,
    HostUnreachable,
    NoFit,
    NotFound,
    NotPermitted,
    NovaConflict,
    Overloaded,
    PolicyConflict,
    Refused,
    RunConflict,
    StalePlan,
    WorsePlan,
)
from pinner.model.page import Page
from pinner.model.plan.plan import Plan, PlanSummary
from pinner.model.questions import Explanation
from pinner.model.run.journal import Run
from pinner.render import shell, text

bp = APIBlueprint("plans", __name__, tag="Plans")
RENDERERS = {"shell": shell.render, "text": text.render}


@bp.post("/hosts/<host>/plans")
@bp.input(NewPlan)
@bp.output(RootModel[Plan], 201, links=links("plan", "/id", "show_plan", "explain_plan", "apply_plan"))
@bp.doc(
    operation_id="create_plan",
    extensions=may_raise(NotFound, NoFit, NovaConflict, Gone, HostUnreachable, NotPermitted, Overloaded),
)
def create(host: str, json_data: NewPlan) -> tuple[Plan, int, dict[str, str]]:
    """Make a plan for a host from a stored or a new snapshot. Nothing changes on the host."""
    seconds, replaces = json_data.sample_seconds, json_data.replaces
    new = pinner().plan(host, json_data.request(), json_data.snapshot, seconds, caller(), replaces)
    return new, 201, {"Location": f"/v1/plans/{new.id}"}


@bp.get("/plans")
@bp.input(HostPageQuery, location="query")
@bp.output(RootModel[Page[PlanSummary]])
@bp.doc(operation_id="list_plans", extensions=may_raise(NotFound))
def listing(query_data: HostPageQuery) -> PageAnswer[PlanSummary]:
    """List the stored plans."""
    return linked(pinner().plans(query_data.host, query_data.part()))


@bp.get("/plans/<plan>")
@bp.input(PlanQuery, location="query")
@bp.output(RootModel[Plan])
@bp.doc(
    operation_id="show_plan",
    responses=media_type("text/plain", TEXT) | NOT_MODIFIED,
    extensions=may_raise(NotFound) | {HEADERS: [IF_CHANGED]},
)
def show(plan: str, query_data: PlanQuery) -> Response:
    """Show a stored plan as JSON, as equivalent shell commands, or as text for people."""
    if query_data.format == "json":
        kept = app_state().kept_plans.get(plan, pinner().plan_by_id)
        require_own_host("plan", plan, kept.host)
        answer = Response(kept.json, mimetype="application/json")
        answer.set_etag(plan, weak=True)
        answer.make_conditional(request)
        return answer
    stored = pinner().plan_by_id(plan)
    return Response(RENDERERS[query_data.format](stored), content_type="text/plain; charset=utf-8")


@bp.get("/plans/<plan>/explanation")
@bp.input(ExplanationQuery, location="query")
@bp.output(RootModel[Explanation])
@bp.doc(operation_id="explain_plan", extensions=may_raise(NotFound, NoFit, NovaConflict))
def explanation(plan: str, query_data: ExplanationQuery) -> Explanation:
    """Show why a stored plan gives a guest its CPUs, and what each other place would cost."""
    return pinner().explain(plan, query_data.guest)


@bp.post("/plans/<plan>/apply")
@bp.input(NewApply)
@bp.output(RootModel[Run], 202, links=links("run", "/id", "show_run", "follow_run", "roll_back_run"))
@bp.doc(
    operation_id="apply_plan",
    extensions=may_raise(
        NotFound,
        StalePlan,
        NovaConflict,
        Refused,
        Blocked,
        WorsePlan,
        HostBusy,
        RunConflict,
        PolicyConflict,
        Gone,
        ApplyFailed,
        HostUnreachable,
        NotPermitted,
    ),
)
def apply(plan: str, json_data: NewApply) -> tuple[Run, int, dict[str, str]]:
    """Start to apply a plan. The answer is the run, which continues after the answer.

    If a change fails, the changes of its guest or process are undone; the run places the others and ends
    `applied_partly`. A run without changes found the host as planned, and cannot be rolled back."""
    run = pinner().apply(plan, json_data.options(), caller())
    return run, 202, {"Location": f"/v1/runs/{run.id}"}
