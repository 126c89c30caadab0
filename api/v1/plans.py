"""/v1/plans: make, read, list and apply them."""

from apiflask import APIBlueprint
from flask import Response
from pydantic import RootModel

from pinner import render
from pinner.api.context import caller, pinner
from pinner.api.openapi import TEXT, failing, links, written
from pinner.api.schemas import HostPageQuery, NewApply, NewPlan, PlanQuery
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
    PolicyConflict,
    RunConflict,
    StalePlan,
)
from pinner.model.journal import Run
from pinner.model.page import Page
from pinner.model.plan import Plan, PlanSummary
from pinner.planning import shell

bp = APIBlueprint("plans", __name__, tag="Plans")
WRITERS = {"shell": shell.render, "text": render.plan}


@bp.post("/hosts/<host>/plans")
@bp.input(NewPlan)
@bp.output(RootModel[Plan], 201, links=links("plan", "/id", "get_plans_show", "post_plans_apply"))
@bp.doc(extensions=failing(NotFound, NoFit, NovaConflict, Gone, HostUnreachable, NotPermitted))
def create(host: str, json_data: NewPlan) -> tuple[Plan, int, dict[str, str]]:
    """Plan for a host, from a stored snapshot or from one taken now; nothing on the host changes."""
    made = pinner().plan(host, json_data.request(), json_data.snapshot, json_data.sample_seconds, caller())
    return made, 201, {"Location": f"/v1/plans/{made.id}"}


@bp.get("/plans")
@bp.input(HostPageQuery, location="query")
@bp.output(RootModel[Page[PlanSummary]])
@bp.doc(extensions=failing(NotFound))
def listing(query_data: HostPageQuery) -> Page[PlanSummary]:
    """Stored plans, newest first."""
    return pinner().plans(query_data.host, query_data.limit, query_data.marker)


@bp.get("/plans/<plan>")
@bp.input(PlanQuery, location="query")
@bp.output(RootModel[Plan])
@bp.doc(responses=written("text/plain", TEXT), extensions=failing(NotFound))
def show(plan: str, query_data: PlanQuery) -> Plan | Response:
    """A stored plan: as JSON, as the shell commands that do the same, or as text for people."""
    found = pinner().plan_by_id(plan)
    if query_data.format == "json":
        return found
    return Response(WRITERS[query_data.format](found), content_type="text/plain; charset=utf-8")


@bp.post("/plans/<plan>/apply")
@bp.input(NewApply)
@bp.output(RootModel[Run], 202, links=links("run", "/id", "get_runs_show", "get_runs_events", "post_runs_rollback"))
@bp.doc(
    extensions=failing(
        NotFound,
        StalePlan,
        NovaConflict,
        Blocked,
        HostBusy,
        RunConflict,
        PolicyConflict,
        Gone,
        ApplyFailed,
        HostUnreachable,
        NotPermitted,
    )
)
def apply(plan: str, json_data: NewApply) -> tuple[Run, int, dict[str, str]]:
    """Start to apply a plan; follow the run that comes back."""
    run = pinner().apply(plan, json_data.persist, caller(), migrate_memory=json_data.migrate_memory)
    return run, 202, {"Location": f"/v1/runs/{run.id}"}
