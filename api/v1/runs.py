"""/v1/runs: what was done to hosts, how far it is, and taking it back."""

from apiflask import APIBlueprint
from flask import Response
from pydantic import RootModel

from pinner.api.context import caller, interface, pinner
from pinner.api.openapi import EVENT, failing, links, written
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
@bp.doc(extensions=failing(NotFound))
def listing(query_data: HostPageQuery) -> Page[Run]:
    """All runs, newest first."""
    return pinner().runs(query_data.host, query_data.limit, query_data.marker)


@bp.get("/runs/<run>")
@bp.output(RootModel[RunDetail])
@bp.doc(extensions=failing(NotFound, HostUnreachable, NotPermitted))
def show(run: str) -> RunDetail:
    """A run and its changes with their states."""
    return RunDetail(pinner().run(run), pinner().entries(run))


@bp.get("/runs/<run>/events")
@bp.doc(responses=written(MEDIA, EVENT), extensions=failing(NotFound))
def events(run: str) -> Response:
    """Follow a run as server-sent events.

    One `change` for every change that has ended or ends, its data a Progress in JSON; then `end`, with the run as it
    ended. An `error` with an error document comes instead where the run can be followed no further.
    """
    pinner().run(run)
    return interface().streams.respond(pinner().follow(run))


@bp.post("/runs/<run>/rollback")
@bp.input(NewRollback)
@bp.output(RootModel[Run], 202, links=links("run", "/id", "get_runs_show", "get_runs_events"))
@bp.doc(
    extensions=failing(
        NotFound, RunConflict, PolicyConflict, HostBusy, Gone, ApplyFailed, HostUnreachable, NotPermitted
    )
)
def rollback(run: str, json_data: NewRollback) -> tuple[Run, int, dict[str, str]]:  # noqa: ARG001
    """Start to take a run back; the answer is the run that does it."""
    undo = pinner().rollback(run, caller())
    return undo, 202, {"Location": f"/v1/runs/{undo.id}"}
