"""A host kept by a real `pinner serve`, and daemons to keep in their place. The policy names all that may be moved:
whatever else runs on the machine stays as it is."""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from support.kernel import masks, names

from pinner.host.libvirt import Libvirt
from pinner.host.live import ROOT
from pinner.model.guest import Guest

DAEMON = """#!{python}
import sys, threading
for _ in range(2):
    threading.Thread(target=threading.Event().wait, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


RARE_RESYNC = "[policy]\nresync_seconds = 600\nmeasure_seconds = 600\n[host]\nsample_seconds = 0.1\n"
"""The configuration where what is put right, an event led to."""


class PolicyServer:
    """The server, and what is asked of it."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self.process = process
        self.log = log
        wait_until(lambda: re.search(r"http://\S+:\d+", log.read_text()) or process.poll() is not None, 30)
        found = re.search(r"host (\S+) at (http://\S+:\d+)", log.read_text())
        assert found is not None, log.read_text()
        self.host, self.url = found.groups()
        self.http = httpx.Client(base_url=f"{self.url}/v1", timeout=30)

    def pids(self) -> list[int]:
        """The agent's process, and that of the API."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [self.process.pid, *map(int, children)]

    def policy(self, mode: str, guests: Iterable[str], processes: Iterable[str] = (), **request: object) -> None:
        """Nobody is busy enough to be moved who is not named."""
        request |= {"busy_threshold": 1e6, "guests": list(guests), "processes": list(processes)}
        answer = self.http.put(f"/hosts/{self.host}/policy", json={"mode": mode, "request": request})
        assert answer.status_code == 200, answer.text

    def roles(self) -> dict[str, str]:
        """The CPUs of housekeeping, emulator and vcpu in the placement that stands; empty where none does."""
        placement = self.drift()["placement"]
        return dict(self.http.get(f"/plans/{placement}").json()["roles"]) if placement else {}

    def drift(self) -> dict[str, Any]:
        """The report."""
        answer = self.http.get(f"/hosts/{self.host}/drift")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def settle(self, placed: Callable[[], object] = lambda: True) -> dict[str, str]:
        """The CPUs of each role, when the policy finds nothing to do and ``placed`` holds."""

        def is_final() -> bool:
            time.sleep(0.5)
            report = self.drift()
            return bool(report["placement"] and not report["drifts"] and placed())

        assert wait_until(is_final, 60) < 60, (self.drift(), self.log.read_text())
        return self.roles()

    def audit(self) -> list[dict[str, Any]]:
        """The audit trail, newest first."""
        return list(self.http.get("/audit", params={"limit": 500}).json()["items"])

    def runs(self) -> list[dict[str, Any]]:
        """All runs, newest first."""
        return list(self.http.get("/runs", params={"limit": 500}).json()["items"])

    def changes(self, run: str) -> list[dict[str, Any]]:
        """What a run changed."""
        return [entry["change"]["target"] for entry in self.http.get(f"/runs/{run}").json()["entries"]]


class Daemon:
    """A program of three threads with a name of its own, that can be started again and again."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._file = folder / name
        self._file.write_text(DAEMON.format(python=sys.executable))
        self._file.chmod(0o755)
        self._running: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._running is not None
        return self._running.pid

    @property
    def is_running(self) -> bool:
        return self._running is not None

    def start(self) -> None:
        """Returns when the kernel runs it, before it has its threads."""
        self._running = subprocess.Popen([str(self._file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def wait_ready(self) -> None:
        """Until it has its threads."""
        assert self._running is not None
        assert self._running.stdout is not None
        assert self._running.stdout.readline()

    def bear(self) -> None:
        """Another thread."""
        assert self._running is not None
        assert self._running.stdin is not None
        self._running.stdin.write(b"\n")
        self._running.stdin.flush()

    def stop(self) -> None:
        if self._running is not None:
            self._running.kill()
            self._running.communicate()
            self._running = None


@contextmanager
def running(folder: Path, name: str) -> Iterator[Daemon]:
    """A daemon that has its threads; it ends with the context."""
    daemon = Daemon(folder, f"{name}-{os.getpid()}"[:15])
    daemon.start()
    daemon.wait_ready()
    try:
        yield daemon
    finally:
        daemon.stop()


@contextmanager
def fresh_policy_server(uri: str, config: str) -> Iterator[PolicyServer]:
    """A server that begins with no state and leaves none."""
    with (
        tempfile.TemporaryDirectory(prefix="pinner-test-") as folder,
        policy_server(Path(folder), uri, config=config) as kept,
    ):
        yield kept


@contextmanager
def policy_server(folder: Path, uri: str, *, config: str = "") -> Iterator[PolicyServer]:
    """A server for the guests of the libvirtd at ``uri``, its state below ``folder``."""
    folder.chmod(0o711)
    file, log = folder / "pinner.conf", folder / "log"
    file.write_text(f"[agent]\nstate_dir = {folder}/state\n[libvirt]\nuri = {uri}\n{config}")
    command = [Path(sys.executable).with_name("pinner"), "serve", "--config-file", file, "--port", "0"]
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out, text=True) as process:
        try:
            kept = PolicyServer(process, log)
            with kept.http:
                yield kept
        finally:
            process.terminate()


def wait_until(condition: Callable[[], object], seconds: float) -> float:
    """How many seconds it took, at most ``seconds``."""
    began = time.perf_counter()
    while not condition():
        if time.perf_counter() - began > seconds:
            return seconds
        time.sleep(0.002)
    return time.perf_counter() - began


def qemu_of(libvirt: Libvirt, guest: Guest) -> int:
    """The process id of the guest's QEMU now."""
    return next(each.pid for each in libvirt.guests(ROOT) if each.uuid == guest.uuid)


def all_on(pid: int, cpus: object) -> bool:
    """Whether every thread of a process may run on these CPUs alone."""
    return set(masks(pid).values()) == {str(cpus)}


def guest_on(pid: int, emulator: object, vcpu: object) -> bool:
    """Whether every vCPU of a QEMU may run on the CPUs ``vcpu`` alone, and every other thread on ``emulator``."""
    found, called = masks(pid), names(pid)
    wanted = {tid: str(vcpu if name.startswith("CPU ") else emulator) for tid, name in called.items()}
    return all(found.get(tid, mask) == mask for tid, mask in wanted.items())
