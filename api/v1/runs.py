"""/v1/runs: list, show, follow and roll back runs; /v1/hosts/{host}/rollback: roll all of them back."""

from apiflask import APIBlueprint
from flask import Response
from pydantic import RootModel

from pinner.api.access.context import app_state, caller, pinner
from pinner.api.description.operations import Json, links, may_raise, media_type
from pinner.api.schemas.answers import PageAnswer, RunDetail, linked
from pinner.api.schemas.bodies import NewRollback
from pinner.api.schemas.queries import RunQuery
from pinner.api.streams import MEDIA
from pinner.api.validation import COMPONENT
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
from pinner.model.outcome.outcome import RunOutcome
from pinner.model.page import Page
from pinner.model.run.journal import Run

EVENT: Json = {
    "description": "An event of the stream.",
    "type": "object",
    "properties": {
        "event": {"enum": ["change", "end", "error"]},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {
                "oneOf": [{"$ref": COMPONENT.format(model=name)} for name in ("RunProgress", "ErrorDocument")]
            },
        },
    },
    "required": ["event", "data"],
}

bp = APIBlueprint("runs", __name__, tag="Runs")


@bp.get("/runs")
@bp.input(RunQuery, location="query")
@bp.output(RootModel[Page[Run]])
@bp.doc(operation_id="list_runs", extensions=may_raise(NotFound))
def listing(query_data: RunQuery) -> PageAnswer[Run]:
    """List the runs."""
    return linked(pinner().runs(query_data.host, query_data.part(), state=query_data.state))


@bp.get("/runs/<run>")
@bp.output(RootModel[RunDetail])
@bp.doc(operation_id="show_run", extensions=may_raise(NotFound, HostUnreachable, NotPermitted))
def show(run: str) -> RunDetail:
    """Show a run and its changes with their states."""
    return RunDetail(pinner().run(run), pinner().entries(run))


@bp.get("/runs/<run>/outcome")
@bp.output(RootModel[RunOutcome])
@bp.doc(operation_id="show_outcome", extensions=may_raise(NotFound, RunConflict, HostUnreachable, NotPermitted))
def outcome(run: str) -> RunOutcome:
    """Show what was measured in the five minutes before and after a run, and what its plan expected.

    The outcome is observed and not tested: the load may have changed by itself. It is stored when it is complete."""
    return pinner().outcome(run)


@bp.get("/runs/<run>/events")
@bp.doc(operation_id="follow_run", responses=media_type(MEDIA, EVENT), extensions=may_raise(NotFound))
def events(run: str) -> Response:
    """Follow a run as server-sent events.

    The stream has one `change` event for each change of the run, also for earlier ones, and ends with `end`. The data
    of both is a RunProgress in JSON. If pinner cannot follow the run further, the last event is `error` with an error
    document."""
    pinner().run(run)
    return app_state().streams.respond(pinner().follow(run))


@bp.post("/hosts/<host>/rollback")
@bp.input(NewRollback)
@bp.output(RootModel[Run], 202, links=links("run", "/id", "show_run", "follow_run"))
@bp.doc(
    operation_id="roll_back_host",
    extensions=may_raise(NotFound, PolicyConflict, HostBusy, HostUnreachable, NotPermitted),
)
def rollback_all(host: str, json_data: NewRollback) -> tuple[Run, int, dict[str, str]]:  # noqa: ARG001
    """Start to give everything on a host what it had before pinner first touched it.

    The answer is a run that undoes all runs of the host. It is refused while the host's policy is enforced: delete the
    policy first, or set its mode to `propose` or `observe`. What another program has changed since stays, and the run
    names it."""
    undo = pinner().rollback_all(host, caller())
    return undo, 202, {"Location": f"/v1/runs/{undo.id}"}


@bp.post("/runs/<run>/rollback")
@bp.input(NewRollback)
@bp.output(RootModel[Run], 202, links=links("run", "/id", "show_run", "follow_run"))
@bp.doc(
    operation_id="roll_back_run",
    extensions=may_raise(
        NotFound, RunConflict, PolicyConflict, HostBusy, Gone, ApplyFailed, HostUnreachable, NotPermitted
    ),
)
def rollback(run: str, json_data: NewRollback) -> tuple[Run, int, dict[str, str]]:  # noqa: ARG001
    """Start to roll back a run. The answer is the new run that undoes its changes."""
    undo = pinner().rollback(run, caller())
    return undo, 202, {"Location": f"/v1/runs/{undo.id}"}
