"""Opens the agent's journal. No host uses another one's folder. With a damaged file the host can only be read."""

import hashlib
import hmac
import json
import logging
import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from pinner import whole_file
from pinner.model.cpuset import CpuSet
from pinner.model.errors import Invalid, PinnerError, StoreUnavailable
from pinner.model.run.journal import RecordedPins, Run
from pinner.store.journal.journal import FILE, StoredJournal
from pinner.worker import Worker

LOG = logging.getLogger(__name__)

RETRY_SECONDS = 30.0
_LIMIT_SECONDS = 300.0


class UnusableJournal:
    """Satisfies apply's Journal and the agent's Chain; methods that need the file raise the error of its opening."""

    def __init__(self, error: StoreUnavailable) -> None:
        self._error = error
        self.chain = self

    def close(self) -> None:
        pass

    def leave(self, run: Run) -> None:
        pass

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise StoreUnavailable(**self._error.details)

    begin = close_unbegun = end_earlier_boots = intend = note = end = interrupted = purge = _refuse
    run = entries = readable_entries = changes_of = recorded_pins = changed_later = in_force = _refuse
    placed = placed_processes = moved_processes = allocated = require_room = _refuse
    append = append_new = heads = records = _refuse


class LastMasks:
    """The masks in force, or those of the last reading while the journal cannot be read."""

    def __init__(self, journal: StoredJournal | UnusableJournal) -> None:
        self._journal = journal
        self._masks: tuple[CpuSet, ...] = ()

    def __call__(self) -> tuple[CpuSet, ...]:
        if isinstance(self._journal, UnusableJournal):
            return self._masks
        try:
            self._masks = self._journal.placed()
        except StoreUnavailable as error:
            LOG.warning("processes that pinner has placed may look restricted by others: %s", error)
        return self._masks


def pins_of(journal: StoredJournal | UnusableJournal, guests: Collection[str]) -> RecordedPins:
    """While the journal cannot be read, each live pin counts as pinner's."""
    if not isinstance(journal, UnusableJournal):
        try:
            return journal.recorded_pins(guests)
        except StoreUnavailable as error:
            LOG.warning("pins that pinner wrote to the definitions of guests may look like an operator's: %s", error)
    return RecordedPins(placed=frozenset(guests))


def open_journal(folder: Path) -> StoredJournal | UnusableJournal:
    try:
        return StoredJournal(folder)
    except StoreUnavailable as error:
        LOG.error(
            "no plan can be applied and no run rolled back, and processes and definitions that pinner has changed may "
            "look restricted by others: %s",
            error,
        )
        return UnusableJournal(error)


class JournalRetry(Worker):
    """Opens the journal again and again: a disk may be full for a while. Then it ends the agent by PinnerError; the
    next start first recovers the interrupted run."""

    def __init__(self, folder: Path) -> None:
        super().__init__("journal retry", _LIMIT_SECONDS)
        self._folder = folder
        self._had_file = os.access(folder / FILE, os.F_OK)

    def _repeat(self) -> None:
        while not self._stop.wait(RETRY_SECONDS):
            self.heartbeat.beat()
            if self._had_file and not os.access(self._folder / FILE, os.F_OK):
                continue  # it was moved away to be repaired: an empty one in its place would know no prior mask
            with suppress(StoreUnavailable):
                StoredJournal(self._folder).close()
                raise PinnerError(
                    f"the journal in {self._folder} can be used again, but only by an agent that is started again"
                )


OWNER_FILE = "host.json"
MACHINE_ID = Path("/etc/machine-id")

_APPLICATION = b"pinner state folder"


@dataclass(frozen=True, slots=True)
class StateOwner:
    name: str
    machine: str
    """A hash of /etc/machine-id, which machine-id(5) asks to keep confidential; empty without one."""

    def __str__(self) -> str:
        return f"{self.name} (machine {self.machine[:12] or 'unknown'})"


def this_host(name: str, machine_id: Path = MACHINE_ID) -> StateOwner:
    try:
        text = machine_id.read_bytes().strip()
    except OSError:
        text = b""
    return StateOwner(name, hmac.new(_APPLICATION, text, hashlib.sha256).hexdigest() if text else "")


def require_own_state(folder: Path, host: StateOwner) -> None:
    """Note in a new state folder that it belongs to this host. Raises Invalid where it belongs to another one (copied,
    restored or shared) or this host has another name now, and StoreUnavailable."""
    path = folder / OWNER_FILE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            # If another process was first, its host counts.
            whole_file.create(path, json.dumps(asdict(host)).encode())
        owner = StateOwner(**json.loads(path.read_bytes()))
    except OSError as error:
        raise StoreUnavailable(str(path), error.strerror or str(error)) from None
    except (ValueError, TypeError):
        raise StoreUnavailable(
            str(path), "the file is damaged; delete it if this folder belongs to this host"
        ) from None
    if owner.machine and host.machine and owner.machine != host.machine:
        raise Invalid(
            "[agent] state_dir",
            str(folder.parent),
            f"the state folder of this host, {host}. This one belongs to {owner}, whose threads and runs do not exist "
            "here. Name another folder, or move this one away. If the machine id of this host was changed, delete "
            f"{path}",
        )
    if owner.name != host.name:
        raise Invalid(
            "[agent] state_dir",
            str(folder.parent),
            f"the state folder of {host.name}. This one belongs to {owner}. If the host was renamed, set "
            f"[host] name = {owner.name} so that its runs can still be rolled back; otherwise name another folder",
        )
