"""A lab host: a running virtual machine that executes commands; only the console log of a hung host remains."""

import compileall
import os
import shutil
import socket
import subprocess
import sysconfig
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NoReturn, Self

from lab import firmware, image, kvm, machine
from lab.agent import GuestAgent, Result
from lab.errors import Hung, LabError
from lab.machine import Machine
from lab.topology import LabTopology

BOOT_SECONDS = 300
RUN_SECONDS = 300
_STOP_SECONDS = 10
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_EXCERPT_BYTES = 4000
"""The length of a hung host's console log that the error contains."""
_OVERHEAD_MIB = 768
"""The memory that QEMU uses beside the machine's own: translated code, devices."""
_PROJECT = Path(__file__).parents[2]
_SOFTWARE = ("api", "etc", "migrations", "pinner", "tools")
_COMMAND = """\
#!/bin/sh
export PYTHONPATH=/opt/pinner/tree:/opt/pinner/site-packages
exec python3 -c 'import sys; from pinner.cli.{module} import main; sys.exit(main())' "$@"
"""
_COMMANDS = {"pinner": "main", "pinner-manage": "manage.manage"}
"""The module of each command."""


def software(folder: Path) -> Path:
    """A disk in ``folder`` with pinner from the working tree and its packages from this venv."""
    tree, disk = folder / "software", folder / "software.ext4"
    for name in _SOFTWARE:
        shutil.copytree(_PROJECT / name, tree / "tree" / name, symlinks=True)
    packages = sysconfig.get_path("platlib")
    shutil.copytree(packages, tree / "site-packages", symlinks=True, ignore=shutil.ignore_patterns("*mypy*"))
    (tree / "bin").mkdir()
    for command, module in _COMMANDS.items():
        (tree / "bin" / command).write_text(_COMMAND.format(module=module))
        (tree / "bin" / command).chmod(0o755)
    compileall.compile_dir(tree / "tree", quiet=2)
    image.make_disk(tree, disk, 1024)
    shutil.rmtree(tree)
    return disk


class LabHost:
    """One running host. Start it in the main thread: it ends with the thread that started it."""

    def __init__(
        self,
        topology: LabTopology,
        folder: Path,
        disk: Path,
        *,
        kernel: str = "",
        number: int = 1,
        port: int = 19000,
        reboots: bool = False,
    ) -> None:
        """Begin to boot; ``wait`` returns when the host can be used. Raises LabError before anything is started.

        ``folder`` is created for the logs and a socket; its path must be short because of the socket. Only a host with
        ``reboots`` can be rebooted; its disk keeps what was written.
        """
        check(topology)
        self.topology = topology
        self.folder = folder
        self.machine = Machine(
            topology,
            kernel,
            number,
            port,
            folder,
            image.image(topology.package),
            disk,
            kvm.usable(),
            _free_port(),
            reboots=reboots,
        )
        prepare(self.machine)
        self._agent = GuestAgent(folder / "agent")
        with (folder / "qemu.log").open("w") as log:
            # The kernel ends the machine if this process is killed.
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *machine.command(self.machine)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        self.wait()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def wait(self, seconds: float = BOOT_SECONDS) -> None:
        """Wait until the host has booted. Raises Hung; then the host is killed."""
        try:
            self._agent.wait(lambda: self._process.poll() is None, time.monotonic() + seconds)
        except TimeoutError as error:
            ended = f"its QEMU ended with status {self._process.returncode}: {self._end_of_log()}"
            self._abort(f"did not boot in {seconds:g} s" if self._process.poll() is None else ended, error)
        self.run("systemctl is-system-running --wait", timeout=seconds, check=False)
        for device, address in (("eth0", self.address), ("eth1", machine.API)):
            self.run(f"ip addr add {address}/24 dev {device} && ip link set {device} up")

    @property
    def pid(self) -> int:
        """The process id of the host's QEMU."""
        return self._process.pid

    @property
    def address(self) -> str:
        """The host's IP address on the lab's network."""
        return f"10.19.0.{self.machine.number}"

    @property
    def url(self) -> str:
        """The URL by which this machine reaches the host's port 8077."""
        return f"http://127.0.0.1:{self.machine.api}"

    def run(self, command: str, *, stdin: str | bytes = "", timeout: float = RUN_SECONDS, check: bool = True) -> Result:
        """Run a shell command to its end.

        Raises LabError with the command's output if it fails and ``check`` is set. Raises Hung if it does not end in
        time; then the host is killed.
        """
        try:
            data = stdin.encode() if isinstance(stdin, str) else stdin
            result = self._agent.run(["/bin/sh", "-c", command], data, time.monotonic() + timeout)
        except OSError as error:
            self._abort(f"gave no answer in {timeout:g} s to: {command}", error)
        if check and result.status:
            raise LabError(f"{command}\nended with status {result.status}:\n{result.out}{result.err}")
        return result

    def reboot(self, seconds: float = BOOT_SECONDS) -> None:
        """Reboot the host, and wait until it can be used again. Raises Hung."""
        before = self.run(f"cat {_BOOT_ID}").out
        self.run("systemctl --no-block reboot")
        deadline = time.monotonic() + seconds
        while self._boot_id() in ("", before):
            if time.monotonic() > deadline:
                self._abort(f"did not reboot in {seconds:g} s", TimeoutError("the old system still runs"))
            time.sleep(1)
        self.wait(deadline - time.monotonic())

    def _boot_id(self) -> str:
        """The id of the running system; empty while it starts or ends."""
        with suppress(OSError, RuntimeError):
            self._agent.wait(lambda: self._process.poll() is None, time.monotonic() + 5)
            return self._agent.run(["/bin/cat", _BOOT_ID], b"", time.monotonic() + 5).out
        return ""

    def close(self) -> None:
        """End the machine; its writes to the disk are dropped, its console log remains."""
        self._agent.close()
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _abort(self, why: str, error: Exception) -> NoReturn:
        """End the machine and copy its console log to a file outside its folder, which will be deleted.

        A note of the exception has the end of the log, for readers of a test's output on another machine.
        """
        self.close()
        console = b""
        with suppress(FileNotFoundError):
            console = (self.folder / "console.log").read_bytes()
        descriptor, saved = tempfile.mkstemp(prefix=f"pinner-lab-{self.topology.name}-", suffix=".log")
        with os.fdopen(descriptor, "wb") as log:
            log.write(console)
        hung = Hung(f"lab host {self.topology.name}: {why}; console: {saved}")
        hung.add_note(f"its console log ends with\n{console[-_EXCERPT_BYTES:].decode(errors='replace')}")
        raise hung from error

    def _end_of_log(self) -> str:
        return (self.folder / "qemu.log").read_text().strip()[-400:]


def prepare(plan: Machine) -> None:
    """Create the machine's folder and its initial ram disk."""
    plan.folder.mkdir(parents=True, exist_ok=True)
    (plan.folder / "initrd").write_bytes(firmware.early_archive(plan.topology) + plan.image.initrd.read_bytes())


def check(topology: LabTopology) -> None:
    """Raise LabError, in one line, if no host of this topology can be started here."""
    if lacking := [tool for tool in ("qemu-system-x86_64", "setpriv") if shutil.which(tool) is None]:
        raise LabError(f"lab: not installed: {', '.join(lacking)} (apt install qemu-system-x86 util-linux)")
    if topology.devices and not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        raise LabError(f"lab: topology {topology.name} needs /dev/net/tun, for the taps of its cards")
    needed = topology.memory_mib + _OVERHEAD_MIB
    free = _available_mib()
    if free < needed:
        raise LabError(f"lab: topology {topology.name} needs {needed} MiB of memory, {free} MiB are available")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _available_mib() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")) >> 10
