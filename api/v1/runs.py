"""/v1/runs: list, show, follow and roll back runs."""

from apiflask import APIBlueprint
from flask import Response
from pydantic import RootModel

from pinner.api.context import app_state, caller, pinner
from pinner.api.openapi import EVENT, links, may_raise, media_type
from pinner.api.schemas import HostPageQuery, NewRollback, RunDetail
from pinner.api.streams import MEDIA
from pinner.model.errors import (
    ApplyFailed,
    Gone,
    HostBusy,
    HostUnreachable,
    NotFound,
    NotPermitted,
    PolicyConflict,
    RunConflict,
)
from pinner.model.journal import Run
from pinner.model.page import Page

bp = APIBlueprint("runs", __name__, tag="Runs")


@bp.get("/runs")
@bp.input(HostPageQuery, location="query")
@bp.output(RootModel[Page[Run]])
@bp.doc(extensions=may_raise(NotFound))
def listing(query_data: HostPageQuery) -> Page[Run]:
    """List the runs, newest first."""
    return pinner().runs(query_data.host, query_data.limit, query_data.marker)


@bp.get("/runs/<run>")
@bp.output(RootModel[RunDetail])
@bp.doc(extensions=may_raise(NotFound, HostUnreachable, NotPermitted))
def show(run: str) -> RunDetail:
    """Show a run and its changes with their states."""
    return RunDetail(pinner().run(run), pinner().entries(run))


@bp.get("/runs/<run>/events")
@bp.doc(responses=media_type(MEDIA, EVENT), extensions=may_raise(NotFound))
def events(run: str) -> Response:
    """Follow a run as server-sent events.

    The stream has one `change` event for each change of the run, also for changes that ended before. The last event is
    `end`. The data of both is a RunProgress in JSON. If pinner cannot follow the run further, the last event is `error`
    and its data is an error document.
    """
    pinner().run(run)
    return app_state().streams.respond(pinner().follow(run))


@bp.post("/runs/<run>/rollback")
@bp.input(NewRollback)
@bp.output(RootModel[Run], 202, links=links("run", "/id", "get_runs_show", "get_runs_events"))
@bp.doc(
    extensions=may_raise(
        NotFound, RunConflict, PolicyConflict, HostBusy, Gone, ApplyFailed, HostUnreachable, NotPermitted
    )
)
def rollback(run: str, json_data: NewRollback) -> tuple[Run, int, dict[str, str]]:  # noqa: ARG001
    """Start to roll back a run. The answer is the new run that undoes its changes."""
    undo = pinner().rollback(run, caller())
    return undo, 202, {"Location": f"/v1/runs/{undo.id}"}
