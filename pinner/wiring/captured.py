import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from oslo_config import cfg

from pinner.agent.captured import CapturedAgent
from pinner.agent.protocol import Agent
from pinner.host.captured.capture import DescribedGuests, capture, captured_guests
from pinner.host.inventory import LIVE, SnapshotInputs, take_snapshot
from pinner.host.reading import captured
from pinner.host.reading.sampler import take_reading
from pinner.host.virt.guests import DomainDescription
from pinner.host.virt.libvirt import Libvirt
from pinner.model.errors import Busy, HostUnreachable, NotPermitted
from pinner.model.reading import SavedReading
from pinner.model.snapshot import Snapshot
from pinner.service.protocol import Service
from pinner.wiring.service import service_parts
from pinner.wiring.settings import configuration, nova_sets, now

CAPTURE_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class SavedMachine:
    """The numbers of files and guests, and why guests are missing (empty: none is)."""

    files: int
    guests: int
    missing: str


def save_files(
    root: Path | None,
    folder: Path,
    libvirt: DescribedGuests | None,
    read: Callable[[], SavedReading | None] = lambda: None,
    *,
    scrub: bool,
) -> SavedMachine:
    """``libvirt``: None where the machine has no guests. ``read`` gives the counters and settings. Raises Invalid."""
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


def captured_agent(config: cfg.ConfigOpts, root: Path) -> CapturedAgent:
    inputs = SnapshotInputs(
        sets=nova_sets(config), minimum_cores=config.host.minimum_cores, weights=dict(config.objective)
    )
    name, guests = root.resolve().name, captured_guests(root)

    def take(seconds: float) -> Snapshot:
        taken = take_snapshot(root, name, guests, sample_seconds=seconds, now=now, inputs=inputs)
        return captured.with_saved_settings(root, taken)

    return CapturedAgent(take, lambda snapshot: captured.captured_reading(root, snapshot))


def save_machine(config_files: list[Path] | None, root: Path | None, folder: Path, *, scrub: bool) -> SavedMachine:
    """The captured machine below ``root``, or this one with its guests."""
    options = configuration(config_files).libvirt
    if root is not None:
        return save_files(root, folder, captured_guests(root), partial(captured.read_file, root), scrub=scrub)
    libvirt = Libvirt(options.uri, options.call_timeout)
    return save_files(None, folder, libvirt, partial(_reading_of_this_host, libvirt), scrub=scrub)


def _reading_of_this_host(libvirt: Libvirt) -> SavedReading:
    """Those of guests are missing where libvirt does not answer."""
    take = partial(take_snapshot, LIVE, socket.gethostname(), sample_seconds=0.0, now=now)
    try:
        snapshot = take(libvirt)
    except (HostUnreachable, NotPermitted, Busy):
        snapshot = take(None)
    return captured.saved(take_reading(LIVE, snapshot, CAPTURE_SECONDS))


@contextmanager
def open_captured(config_files: list[Path] | None, root: Path) -> Iterator[Service]:
    config = configuration(config_files)
    with ExitStack() as undo:
        folder = undo.enter_context(tempfile.TemporaryDirectory(prefix="pinner-"))
        agent: Agent = captured_agent(config, root)
        url = f"sqlite:///{folder}/pinner.sqlite"
        yield service_parts(config, {root.resolve().name: agent}, url, undo).service
