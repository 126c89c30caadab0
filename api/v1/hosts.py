"""/v1/hosts: the current state of hosts; /v1/snapshots: stored snapshots."""

from apiflask import APIBlueprint
from pydantic import RootModel

from pinner.api.access.context import caller, pinner
from pinner.api.description.operations import links, may_raise
from pinner.api.schemas.answers import PageAnswer, SnapshotSummary, linked, page
from pinner.api.schemas.bodies import NewSnapshot
from pinner.api.schemas.plan import NewScenario
from pinner.api.schemas.queries import (
    BlameQuery,
    CapacityQuery,
    FindingsQuery,
    MeasuresQuery,
    PageQuery,
    ProcessQuery,
    SampleQuery,
)
from pinner.model.errors import Busy, Gone, HostUnreachable, NoFit, NotFound, NotPermitted, NovaConflict, Overloaded
from pinner.model.guest.guest import Guest
from pinner.model.machine.interrupts import HostInterrupts
from pinner.model.machine.process import Process
from pinner.model.machine.topology import Topology
from pinner.model.outcome.blame import Blame
from pinner.model.outcome.check import CheckReport
from pinner.model.outcome.measures import Measures
from pinner.model.page import Page
from pinner.model.questions import Capacity, WhatIf
from pinner.model.snapshot import Snapshot

bp = APIBlueprint("hosts", __name__, tag="Hosts")
HOST_OPERATIONS = (
    "observe_host",
    "show_topology",
    "show_capacity",
    "list_findings",
    "show_measures",
    "blame_guest",
    "what_if",
    "list_interrupts",
    "list_processes",
    "list_guests",
    "take_snapshot",
    "create_plan",
)
HOST_ERRORS = may_raise(NotFound, HostUnreachable, NotPermitted)
MEASURE_ERRORS = may_raise(NotFound, HostUnreachable, NotPermitted, Overloaded)


@bp.get("/hosts")
@bp.input(PageQuery, location="query")
@bp.output(RootModel[Page[str]], links=links("host", "/items/0", *HOST_OPERATIONS))
@bp.doc(operation_id="list_hosts")
def listing(query_data: PageQuery) -> PageAnswer[str]:
    """List the names of the hosts that this server manages."""
    return linked(page(pinner().hosts(), str, query_data.limit, query_data.marker))


@bp.get("/hosts/<host>")
@bp.input(SampleQuery, location="query")
@bp.output(RootModel[Snapshot])
@bp.doc(operation_id="observe_host", extensions=MEASURE_ERRORS)
def observe(host: str, query_data: SampleQuery) -> Snapshot:
    """Take a snapshot of a host without storing it.

    CPU use is measured only for a `sample_seconds` above 0; the answer then takes at least that long."""
    return pinner().observe(host, query_data.sample_seconds)


@bp.get("/hosts/<host>/topology")
@bp.output(RootModel[Topology])
@bp.doc(operation_id="show_topology", extensions=HOST_ERRORS)
def topology(host: str) -> Topology:
    """Show a host's CPUs, NUMA nodes, level-3 cache domains and PCI devices."""
    return pinner().topology(host)


@bp.get("/hosts/<host>/capacity")
@bp.input(CapacityQuery, location="query")
@bp.output(RootModel[Capacity])
@bp.doc(operation_id="show_capacity", extensions=MEASURE_ERRORS)
def capacity(host: str, query_data: CapacityQuery) -> Capacity:
    """Show how many more guests fit a host beside the present ones, by strategy, NUMA node and number of vCPUs.

    `guests` has the sizes 1, 2, 4 and so on, or only `vcpus`. No vCPU would share a CPU, and no placed guest would
    move. `fitting` has the exact numbers for guests of one shape, with their memory. The answer is up to two seconds
    old."""
    return pinner().capacity(host, query_data.vcpus, query_data.shape())


@bp.post("/hosts/<host>/what-if")
@bp.input(NewScenario)
@bp.output(RootModel[WhatIf])
@bp.doc(
    operation_id="what_if",
    extensions=may_raise(NotFound, NoFit, NovaConflict, HostUnreachable, NotPermitted, Overloaded),
)
def what_if(host: str, json_data: NewScenario) -> WhatIf:
    """Plan a host as it is now, and the same host with other guests, nodes or CPUs, or with another request.

    Nothing is stored, and nothing changes on the host."""
    return pinner().what_if(host, json_data.request.request(), json_data.scenario(), json_data.sample_seconds)


@bp.get("/hosts/<host>/findings")
@bp.input(FindingsQuery, location="query")
@bp.output(RootModel[CheckReport])
@bp.doc(operation_id="list_findings", extensions=MEASURE_ERRORS)
def findings(host: str, query_data: FindingsQuery) -> CheckReport:
    """Show what hurts the guests of a host, with the evidence and the remedy.

    The counters are sampled twice, `sample_seconds` apart. With 0 there is one sample, and no counter grows."""
    return pinner().findings(host, query_data.sample_seconds)


@bp.get("/hosts/<host>/measures")
@bp.input(MeasuresQuery, location="query")
@bp.output(RootModel[Measures])
@bp.doc(operation_id="show_measures", extensions=MEASURE_ERRORS)
def measures(host: str, query_data: MeasuresQuery) -> Measures:
    """Show what was measured of a host and its guests: run delay, CPU use, drops.

    The last hour is kept in steps of 5 seconds, the last day in steps of 60, and 31 days in steps of 900. A value is
    null where nothing was measured. An answer has at most a million values: without `step`, a coarser step is taken
    where there are more."""
    return pinner().measures(host, query_data.span(), query_data.guest, query_data.series)


@bp.get("/hosts/<host>/guests/<guest>/blame")
@bp.input(BlameQuery, location="query")
@bp.output(RootModel[Blame])
@bp.doc(
    operation_id="blame_guest", extensions=may_raise(NotFound, HostUnreachable, NotPermitted, Overloaded, Gone, Busy)
)
def blame(host: str, guest: str, query_data: BlameQuery) -> Blame:
    """Trace the scheduler, and show who delays a guest (name or UUID).

    The answer names the threads that ran while threads of the guest waited for a CPU, with their share of the waiting.
    The kernel must allow tracing (tracefs)."""
    return pinner().blame(host, guest, query_data.seconds)


@bp.get("/hosts/<host>/interrupts")
@bp.output(RootModel[HostInterrupts])
@bp.doc(operation_id="list_interrupts", extensions=MEASURE_ERRORS)
def interrupts(host: str) -> HostInterrupts:
    """Show the interrupts and NAPI threads of a host's devices, by node, with their CPUs and the roles of these."""
    return pinner().interrupts(host)


@bp.get("/hosts/<host>/processes")
@bp.input(ProcessQuery, location="query")
@bp.output(RootModel[Page[Process]])
@bp.doc(operation_id="list_processes", extensions=MEASURE_ERRORS)
def processes(host: str, query_data: ProcessQuery) -> PageAnswer[Process]:
    """List the processes of a host and their threads, ordered by process id.

    CPU use is measured anew for each page. `busy` lists only the processes that use more than `busy_threshold` per cent
    of one CPU."""
    listed = pinner().observe(host, query_data.sample_seconds).processes
    if query_data.busy:
        listed = tuple(process for process in listed if process.load > query_data.busy_threshold)
    # Markers are compared as text: ten digits are enough for every process id and sort like the numbers.
    return linked(page(listed, lambda process: f"{process.pid:010}", query_data.limit, query_data.marker))


@bp.get("/hosts/<host>/guests")
@bp.input(PageQuery, location="query")
@bp.output(RootModel[Page[Guest]])
@bp.doc(operation_id="list_guests", extensions=HOST_ERRORS)
def guests(host: str, query_data: PageQuery) -> PageAnswer[Guest]:
    """List the active guests of a host, ordered by UUID. Run times count from the start of each thread."""
    active = pinner().observe(host, 0.0).guests
    return linked(page(active, lambda guest: guest.uuid, query_data.limit, query_data.marker))


@bp.post("/hosts/<host>/snapshot")
@bp.input(NewSnapshot)
@bp.output(RootModel[SnapshotSummary], 201, links=links("snapshot", "/id", "show_snapshot"))
@bp.doc(operation_id="take_snapshot", extensions=MEASURE_ERRORS)
def take_snapshot(host: str, json_data: NewSnapshot) -> tuple[SnapshotSummary, int, dict[str, str]]:
    """Take a snapshot of a host and store it, so that plans can be made from it later."""
    snapshot_id, taken = pinner().take_snapshot(host, json_data.sample_seconds, caller())
    summary = SnapshotSummary(
        snapshot_id,
        taken.host,
        taken.taken_at,
        taken.sample_seconds,
        cpus=len(taken.topology.cpus),
        nodes=len(taken.topology.nodes),
        guests=len(taken.guests),
        processes=len(taken.processes),
        warnings=taken.warnings,
    )
    return summary, 201, {"Location": f"/v1/snapshots/{snapshot_id}"}


@bp.get("/snapshots/<snapshot>")
@bp.output(RootModel[Snapshot])
@bp.doc(operation_id="show_snapshot", extensions=may_raise(NotFound))
def snapshot(snapshot: str) -> Snapshot:
    """Show a stored snapshot. Plans can also be made from a saved copy, on any machine."""
    return pinner().snapshot(snapshot)
