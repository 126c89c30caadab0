"""/v1/plans/{plan}/probe and /v1/probes: test a plan or rank several, show progress and result, end a probe."""

from apiflask import APIBlueprint
from pydantic import RootModel

from pinner.api.access.context import app_state, caller, identity, pinner
from pinner.api.access.policies import PREFIX
from pinner.api.description.operations import links, may_raise
from pinner.api.schemas.bodies import NewProbe
from pinner.model.errors import Blocked, HostBusy, HostUnreachable, NotFound, NotPermitted, PolicyConflict
from pinner.model.outcome.outcome import Probe

bp = APIBlueprint("probes", __name__, tag="Probes")


@bp.post("/plans/<plan>/probe")
@bp.input(NewProbe)
@bp.output(RootModel[Probe], 202, links=links("probe", "/id", "show_probe", "cancel_probe"))
@bp.doc(
    operation_id="probe_plan",
    extensions=may_raise(NotFound, Blocked, HostBusy, PolicyConflict, HostUnreachable, NotPermitted),
)
def create(plan: str, json_data: NewProbe) -> tuple[Probe, int, dict[str, str]]:
    """Start to test whether a plan is better than the present placement. The answer is the probe, which continues.

    The server applies the plan and rolls it back, in windows of random order, and compares run delay, drops, pressure
    and traffic. With rivals it plays each plan, and ranks all. However the probe ends, the host then has the placement
    that the probe found, or the winner where it is to be kept; this also needs the rule pinner:plans:apply.
    """
    if json_data.keep:
        app_state().access.authorizer.require(f"{PREFIX}plans:apply", identity(), "")
    probe = pinner().probe(plan, json_data.options(), caller())
    return probe, 202, {"Location": f"/v1/probes/{probe.id}"}


@bp.get("/probes/<probe>")
@bp.output(RootModel[Probe])
@bp.doc(operation_id="show_probe", extensions=may_raise(NotFound))
def show(probe: str) -> Probe:
    """Show the windows of a probe, and its verdict or ranking after the last one."""
    return pinner().probe_by_id(probe)


@bp.delete("/probes/<probe>")
@bp.output(RootModel[Probe], 202)
@bp.doc(operation_id="cancel_probe", extensions=may_raise(NotFound))
def cancel(probe: str) -> tuple[Probe, int]:
    """End a probe before its time. The placement is put back after the answer. An ended probe stays as it is."""
    return pinner().cancel_probe(probe, caller()), 202
