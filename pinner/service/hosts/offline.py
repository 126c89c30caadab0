"""Use cases that need only a saved snapshot."""

from dataclasses import replace
from typing import TYPE_CHECKING

from pinner import codec
from pinner.model.plan.plan import Plan
from pinner.model.plan.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning import planner

# A plan from a file needs none of these: a command imports only what it uses.
if TYPE_CHECKING:
    from pinner.model.guest.nova import Listening, NovaReport
    from pinner.model.outcome.check import CheckReport
    from pinner.model.questions import Capacity, GuestShape


def plan_from_snapshot(snapshot: Snapshot, request: Request) -> Plan:
    """Raises like planner.plan."""
    return planner.plan(snapshot, codec.content_hash(snapshot), request)


def capacity_from_snapshot(snapshot: Snapshot, request: Request, shape: "GuestShape") -> "Capacity":
    """Raises NotFound for an unknown strategy."""
    from pinner.model.questions import with_sizes
    from pinner.planning.questions import capacity
    from pinner.planning.questions.capacity import shape_rooms

    room = with_sizes(capacity.capacity(snapshot, request), (shape.vcpus,))
    return replace(room, shape=shape, fitting=shape_rooms(snapshot, request, shape))


def nova_report(snapshot: Snapshot, listening: "Listening") -> "NovaReport":
    from pinner.planning.questions import nova_check

    return nova_check.report(snapshot, listening)


def check_snapshot(snapshot: Snapshot) -> "CheckReport":
    from pinner.model.reading import HostReading
    from pinner.service.hosts.checker import HostChecker

    return HostChecker().check(HostReading(snapshot))
