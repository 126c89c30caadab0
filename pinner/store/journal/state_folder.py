"""The host to which a state folder belongs: no host may use the journal of another one."""

import hashlib
import hmac
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from pinner import whole_file
from pinner.model.errors import Invalid, StoreUnavailable

FILE = "host.json"
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
    """Note in a new state folder that it belongs to this host. Raises Invalid where it belongs to another host (copied,
    restored or shared) or this host has another name now, and StoreUnavailable."""
    path = folder / FILE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            _create(path, host)
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


def _create(path: Path, host: StateOwner) -> None:
    """If another process was first, its host counts."""
    whole_file.create(path, json.dumps(asdict(host)).encode())
