"""Use cases that need neither a host's agent nor a database: from a saved snapshot, and for saving a machine."""

from pathlib import Path

from pinner import codec
from pinner.host.capture import capture
from pinner.model.nova_report import Listening, NovaReport
from pinner.model.plan import Plan
from pinner.model.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning import nova_check, planner

LIVE = Path("/")


def plan_from_snapshot(snapshot: Snapshot, request: Request) -> Plan:
    """A plan for a saved snapshot. Raises like planner.plan."""
    return planner.plan(snapshot, codec.content_hash(snapshot), request)


def nova_report(snapshot: Snapshot, listening: Listening) -> NovaReport:
    """The CPUs that Nova owns on the snapshot's host, and the misconfigurations of Nova and of the listener."""
    return nova_check.report(snapshot, listening)


def save_machine(root: Path | None, folder: Path, *, scrub: bool) -> int:
    """Save this machine, or the captured machine below ``root``, as files in ``folder``; the number of files."""
    return capture(root or LIVE, folder, scrub=scrub)
