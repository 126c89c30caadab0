"""A private ovsdb-server on a socket and a database of its own."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which

SCHEMAS = ("/usr/share/openvswitch/vswitch.ovsschema",)


def _schema() -> Path | None:
    beside = [
        str(Path(found).parents[1] / "share/openvswitch/vswitch.ovsschema") for found in [which("ovsdb-tool")] if found
    ]
    return next((Path(each) for each in (*SCHEMAS, *beside) if Path(each).exists()), None)


def missing() -> str:
    """Why no server can be started; empty where one can."""
    if not (which("ovsdb-server") and which("ovsdb-tool") and _schema()):
        return "needs ovsdb-server, ovsdb-tool and the schema of Open vSwitch (Debian: openvswitch-switch)"
    return ""


class Ovs:
    """The server: its socket and process."""

    def __init__(self, socket: Path, process: "subprocess.Popen[bytes]") -> None:
        self.socket = socket
        self.process = process

    def set(self, **other_config: str) -> None:
        """Set other_config; an underscore in a name stands for a hyphen."""
        pairs = [f"other_config:{name.replace('_', '-')}={value}" for name, value in other_config.items()]
        self._vsctl("--", "set", "Open_vSwitch", ".", *pairs)

    def clear(self) -> None:
        """Remove all of other_config."""
        self._vsctl("--", "clear", "Open_vSwitch", ".", "other_config")

    def _vsctl(self, *words: str) -> None:
        command = ["ovs-vsctl", f"--db=unix:{self.socket}", "--timeout=10", "--no-wait", "init", *words]
        subprocess.run(command, check=True, capture_output=True)


@contextmanager
def private_ovsdb(folder: Path) -> Iterator[Ovs]:
    """Start the server in ``folder``, and end it."""
    folder.mkdir(mode=0o700, exist_ok=True)
    database, socket = folder / "conf.db", folder / "db.sock"
    subprocess.run(["ovsdb-tool", "create", str(database), str(_schema())], check=True, capture_output=True)
    options = [f"--remote=punix:{socket}", f"--unixctl={folder}/ctl", "--no-chdir"]
    process = subprocess.Popen(["ovsdb-server", str(database), *options], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while not socket.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield Ovs(socket, process)
    finally:
        process.terminate()
        process.wait(timeout=10)
