"""A private ovsdb-server on a socket and a database of its own, and an ovs-vswitchd with polling threads."""

import os
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

    def add_polling_port(self) -> None:
        """Add a bridge in user space with a port that polling threads serve."""
        bridge = ["--", "--may-exist", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy"]
        port = ["--", "--may-exist", "add-port", "br0", "p0", "--", "set", "interface", "p0", "type=dummy-pmd"]
        self._vsctl(*bridge, *port)

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
        deadline = time.monotonic() + 60
        while not socket.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield Ovs(socket, process)
    finally:
        process.terminate()
        process.wait(timeout=60)


def missing_switch() -> str:
    """Why no switch with polling threads can be started; empty where one can."""
    return missing() or ("" if which("ovs-vswitchd") else "needs ovs-vswitchd (Debian: openvswitch-switch)")


@contextmanager
def polling_switch(ovs: Ovs) -> Iterator[int]:
    """The process id of a real ovs-vswitchd whose polling threads run on pmd-cpu-mask. They need no DPDK: their port is
    one that Open vSwitch has for its own tests. They rest between two polls, and no interface of the host changes."""
    folder = ovs.socket.parent
    ovs.set(pmd_maxsleep="1000")
    ovs.add_polling_port()
    options = ["--enable-dummy", "--disable-system", "--no-chdir", f"--unixctl={folder}/switch.ctl"]
    command = ["ovs-vswitchd", f"unix:{ovs.socket}", *options]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, env=os.environ | {"OVS_RUNDIR": str(folder)}) as process:
        try:
            deadline = time.monotonic() + 60
            while not any(name.startswith("pmd") for name in _thread_names(process.pid)):
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
            yield process.pid
        finally:
            process.terminate()
            process.wait(timeout=60)


def _thread_names(pid: int) -> list[str]:
    return [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/comm")]
