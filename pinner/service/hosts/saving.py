"""Saves a machine as files, for a test or for support."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pinner.host.captured.capture import capture
from pinner.host.captured.captured_guests import DescribedGuests
from pinner.host.virt.guests import DomainDescription
from pinner.model.errors import Busy, HostUnreachable, NotPermitted
from pinner.model.reading import SavedReading

LIVE = Path("/")


@dataclass(frozen=True, slots=True)
class SavedMachine:
    """The numbers of files and guests, and why guests are missing (empty: all are saved)."""

    files: int
    guests: int
    missing: str


def save_machine(
    root: Path | None,
    folder: Path,
    libvirt: DescribedGuests | None,
    read: Callable[[], SavedReading | None] = lambda: None,
    *,
    scrub: bool,
) -> SavedMachine:
    """This machine, or the captured one below ``root``.

    ``libvirt``: None: the machine has no guests. ``read`` gives the counters and settings. Raises Invalid.
    """
    guests: tuple[DomainDescription, ...] = ()
    capabilities = missing = ""
    if libvirt is not None:
        try:
            described, capabilities = libvirt.descriptions(), libvirt.capabilities()
            guests = tuple(guest for guest in described if not guest.unread)
            missing = "; ".join(
                f"guest {guest.name} is not saved: {guest.unread}" for guest in described if guest.unread
            )
        except (HostUnreachable, NotPermitted, Busy) as error:
            missing = f"{error}; guests are not saved"
    saved = capture(root or LIVE, folder, guests, capabilities, read(), scrub=scrub)
    return SavedMachine(saved, len(guests), missing)
