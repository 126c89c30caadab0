"""/v1/hosts and what is seen on a host now; /v1/snapshots, what was seen and kept."""

from apiflask import APIBlueprint
from pydantic import RootModel

from pinner.api.context import caller, pinner
from pinner.api.openapi import failing, links
from pinner.api.paging import page
from pinner.api.schemas import (
    NewSnapshot,
    PageQuery,
    ProcessQuery,
    SampleQuery,
    SnapshotSummary,
)
from pinner.model.errors import HostUnreachable, NotFound, NotPermitted
from pinner.model.guest import Guest
from pinner.model.page import Page
from pinner.model.process import Process
from pinner.model.snapshot import Snapshot
from pinner.model.topology import Topology

bp = APIBlueprint("hosts", __name__, tag="Hosts")
OF_HOST = (
    "get_hosts_observe",
    "get_hosts_topology",
    "get_hosts_processes",
    "get_hosts_guests",
    "post_hosts_take_snapshot",
    "post_plans_create",
)
UNSEEN = failing(NotFound, HostUnreachable, NotPermitted)


@bp.get("/hosts")
@bp.input(PageQuery, location="query")
@bp.output(RootModel[Page[str]], links=links("host", "/items/0", *OF_HOST))
def listing(query_data: PageQuery) -> Page[str]:
    """The hosts that can be planned for."""
    return page(pinner().hosts(), str, query_data.limit, query_data.marker)


@bp.get("/hosts/<host>")
@bp.input(SampleQuery, location="query")
@bp.output(RootModel[Snapshot])
@bp.doc(extensions=UNSEEN)
def observe(host: str, query_data: SampleQuery) -> Snapshot:
    """Everything that a plan would see of a host now; nothing is stored.

    Loads are measured only with `sample_seconds` above 0, which the answer then takes.
    """
    return pinner().observe(host, query_data.sample_seconds)


@bp.get("/hosts/<host>/topology")
@bp.output(RootModel[Topology])
@bp.doc(extensions=UNSEEN)
def topology(host: str) -> Topology:
    """A host's CPUs, nodes, level-3 domains and devices."""
    return pinner().observe(host, 0.0).topology


@bp.get("/hosts/<host>/processes")
@bp.input(ProcessQuery, location="query")
@bp.output(RootModel[Page[Process]])
@bp.doc(extensions=UNSEEN)
def processes(host: str, query_data: ProcessQuery) -> Page[Process]:
    """The processes of a host and their threads, by ascending process id.

    Each page is a sample of its own. With `busy` only those above `busy_threshold` per cent of one CPU.
    """
    seen = pinner().observe(host, query_data.sample_seconds).processes
    if query_data.busy:
        seen = tuple(process for process in seen if process.load > query_data.busy_threshold)
    # Ten digits hold every process id, and give numbers the order of text.
    return page(seen, lambda process: f"{process.pid:010}", query_data.limit, query_data.marker)


@bp.get("/hosts/<host>/guests")
@bp.input(PageQuery, location="query")
@bp.output(RootModel[Page[Guest]])
@bp.doc(extensions=UNSEEN)
def guests(host: str, query_data: PageQuery) -> Page[Guest]:
    """The active guests of a host, by UUID; run times are since each thread began."""
    seen = pinner().observe(host, 0.0).guests
    return page(seen, lambda guest: guest.uuid, query_data.limit, query_data.marker)


@bp.post("/hosts/<host>/snapshot")
@bp.input(NewSnapshot)
@bp.output(RootModel[SnapshotSummary], 201, links=links("snapshot", "/id", "get_hosts_stored"))
@bp.doc(extensions=UNSEEN)
def take_snapshot(host: str, json_data: NewSnapshot) -> tuple[SnapshotSummary, int, dict[str, str]]:
    """Take a snapshot and store it; plans can be made from it later."""
    name, taken = pinner().take_snapshot(host, json_data.sample_seconds, caller())
    summary = SnapshotSummary(
        name,
        taken.host,
        taken.taken_at,
        taken.sample_seconds,
        cpus=len(taken.topology.cpus),
        nodes=len(taken.topology.nodes),
        guests=len(taken.guests),
        processes=len(taken.processes),
        warnings=taken.warnings,
    )
    return summary, 201, {"Location": f"/v1/snapshots/{name}"}


@bp.get("/snapshots/<snapshot>")
@bp.output(RootModel[Snapshot])
@bp.doc(extensions=failing(NotFound))
def stored(snapshot: str) -> Snapshot:
    """A stored snapshot, whole: saved as a file it can be planned from elsewhere."""
    return pinner().snapshot(snapshot)
