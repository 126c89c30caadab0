"""Use cases that need neither a host's agent nor a database: from a saved snapshot, and for saving a machine."""

from dataclasses import dataclass
from pathlib import Path

from pinner import codec
from pinner.host.capture import capture
from pinner.host.captured_guests import DescribedGuests
from pinner.host.guests import DomainDescription
from pinner.model.check import CheckReport
from pinner.model.errors import Busy, HostUnreachable, NotPermitted
from pinner.model.nova_report import Listening, NovaReport
from pinner.model.plan import Plan
from pinner.model.reading import HostReading
from pinner.model.request import Request
from pinner.model.snapshot import Snapshot
from pinner.planning import nova_check, planner
from pinner.service.findings import HostChecker

LIVE = Path("/")


@dataclass(frozen=True, slots=True)
class SavedMachine:
    """The result of a capture: the numbers of files and guests, and why guests are missing (empty: all are saved)."""

    files: int
    guests: int
    missing: str


def plan_from_snapshot(snapshot: Snapshot, request: Request) -> Plan:
    """A plan for a saved snapshot. Raises like planner.plan."""
    return planner.plan(snapshot, codec.content_hash(snapshot), request)


def nova_report(snapshot: Snapshot, listening: Listening) -> NovaReport:
    """The CPUs that Nova owns on the snapshot's host, and the misconfigurations of Nova and of the listener."""
    return nova_check.report(snapshot, listening)


def check_snapshot(snapshot: Snapshot) -> CheckReport:
    """What hurts the guests of the snapshot's host, as far as a snapshot without counters shows it."""
    return HostChecker().check(HostReading(snapshot))


def save_machine(root: Path | None, folder: Path, libvirt: DescribedGuests | None, *, scrub: bool) -> SavedMachine:
    """Save this machine, or the captured machine below ``root``, as files in ``folder``.

    ``libvirt`` describes the guests; None: the machine has none. Raises Invalid.
    """
    guests: tuple[DomainDescription, ...] = ()
    capabilities = missing = ""
    if libvirt is not None:
        try:
            found, capabilities = libvirt.descriptions(), libvirt.capabilities()
            guests = tuple(each for each in found if not each.unread)
            missing = "; ".join(f"guest {each.name} is not saved: {each.unread}" for each in found if each.unread)
        except (HostUnreachable, NotPermitted, Busy) as error:
            missing = f"{error}; guests are not saved"
    return SavedMachine(capture(root or LIVE, folder, guests, capabilities, scrub=scrub), len(guests), missing)
