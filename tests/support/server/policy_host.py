"""A real `pinner serve` with a policy for this host, and daemons for it to place.

The policy names every guest and process that may be moved, so no other process of the machine is moved.
"""

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
from support.server import warm
from support.server.accounts import api_config
from support.server.unix_http import http_client
from support.system.kernel import masks, names

from pinner.host.live import ROOT
from pinner.host.virt.libvirt import Libvirt
from pinner.model.guest.guest import Guest
from pinner.model.plan.objective import CONTENTION, TERMS

DAEMON = """#!{python}
import contextlib, os, subprocess, sys, threading, time
def create_thread():
    threading.Thread(target=threading.Event().wait, daemon=True).start()
def reset(until):
    while not until.is_set():
        for tid in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(int(tid), range(os.cpu_count()))
create_thread()
create_thread()
print("ready", flush=True)
for line in sys.stdin:
    if line == "fork\\n":
        null = subprocess.DEVNULL
        print(subprocess.Popen(["sleep", "infinity"], stdin=null, stdout=null, stderr=null).pid, flush=True)
    elif line == "reset\\n":
        settled = threading.Event()
        resetter = threading.Thread(target=reset, args=(settled,), daemon=True)
        resetter.start()
    elif line == "settle\\n":
        settled.set()
        resetter.join()
        print("settled", flush=True)
    else:
        create_thread()
"""


EXACT = 0.002
"""Seconds between two looks of a benchmark."""
NEVER_BUSY = 100.0 * (os.cpu_count() or 1)
"""The highest threshold on this machine: no process uses more."""

RARE_RESYNC = "[policy]\nresync_seconds = 600\nmeasure_seconds = 600\n[host]\nsample_seconds = 0.1\n"
"""The configuration with a rare resync: every reconcile is then the result of an event."""


class PolicyServer:
    """A running server, and requests to its API."""

    def __init__(self, process: warm.Program, log: Path) -> None:
        self.process = process
        self.log = log
        wait_until(lambda: re.search(r"at unix:\S+", log.read_text()) or process.poll() is not None, 240)
        found = re.search(r"host (\S+) at (unix:\S+)", log.read_text())
        assert found is not None, log.read_text()
        self.host, self.url = found.groups()
        self.http = http_client(self.url, timeout=30, path="/v1")

    def pids(self) -> list[int]:
        """The process ids of the agent and of the API."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [self.process.pid, *map(int, children)]

    def policy(self, mode: str, guests: Iterable[str], processes: Iterable[str] = (), **request: object) -> None:
        """Set a policy that moves only the named guests and processes; no process reaches its busy threshold."""
        answer = self.put_policy(mode, guests, processes, **request)
        assert answer.status_code == 200, answer.text

    def put_policy(
        self, mode: str, guests: Iterable[str], processes: Iterable[str] = (), **request: object
    ) -> httpx.Response:
        """The answer to the policy of ``policy``. On two CPUs, all share CPUs with the vCPUs, and with the machine's
        other programs: a place could be worse, if that had weight."""
        request = {"weights": {term.name: 0 for term in TERMS if term.tier == CONTENTION}} | request
        request |= {"busy_threshold": NEVER_BUSY, "guests": list(guests), "processes": list(processes)}
        return self.http.put(f"/hosts/{self.host}/policy", json={"mode": mode, "request": request})

    def roles(self) -> dict[str, str]:
        """The CPUs of housekeeping, emulator and vcpu in the recorded placement; empty without a placement."""
        placement = self.drift()["placement"]
        return dict(self.http.get(f"/plans/{placement}").json()["roles"]) if placement else {}

    def drift(self) -> dict[str, Any]:
        """The drift report."""
        answer = self.http.get(f"/hosts/{self.host}/drift")
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    def wait_reconciled(self, placed: Callable[[], object] = lambda: True) -> dict[str, str]:
        """The CPUs of each role, once a placement is recorded, no drift is reported and ``placed()`` is true."""

        def reconciled() -> bool:
            time.sleep(0.2)
            report = self.drift()
            return bool(report["placement"] and not report["drifts"] and placed())

        assert wait_until(reconciled, 60) < 60, (self.drift(), self.log.read_text())
        return self.roles()

    def audit(self) -> list[dict[str, Any]]:
        """The audit trail, newest first."""
        return list(self.http.get("/audit", params={"limit": 500}).json()["items"])

    def runs(self) -> list[dict[str, Any]]:
        """All runs, newest first."""
        return list(self.http.get("/runs", params={"limit": 500}).json()["items"])

    def changes(self, run: str) -> list[dict[str, Any]]:
        """The targets of a run's changes."""
        return [entry["change"]["target"] for entry in self.http.get(f"/runs/{run}").json()["entries"]]


class Daemon:
    """A program of three threads with a name of its own, which can be started many times."""

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
        """Start the program and return before it has created its threads."""
        self._running = subprocess.Popen([str(self._file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def wait_ready(self) -> None:
        """Wait until the program has created its threads."""
        assert self._answer()

    def create_thread(self) -> None:
        """Have the program create another thread."""
        self._tell("")

    def fork(self) -> int:
        """Have the program start a child process, which outlives it; the child's process id."""
        self._tell("fork")
        return int(self._answer())

    def reset_affinity(self) -> None:
        """Have the program give all its threads all CPUs again and again, until ``settle``."""
        self._tell("reset")

    def settle(self) -> None:
        """Have the program leave its affinity as it is."""
        self._tell("settle")
        self._answer()

    def _tell(self, command: str) -> None:
        assert self._running is not None
        assert self._running.stdin is not None
        self._running.stdin.write(f"{command}\n".encode())
        self._running.stdin.flush()

    def _answer(self) -> bytes:
        assert self._running is not None
        assert self._running.stdout is not None
        return self._running.stdout.readline()

    def stop(self) -> None:
        if self._running is not None:
            self._running.kill()
            self._running.communicate()
            self._running = None


@contextmanager
def running(folder: Path, name: str) -> Iterator[Daemon]:
    """A daemon with all its threads; it ends with the context."""
    daemon = Daemon(folder, f"{name}-{os.getpid()}"[:15])
    daemon.start()
    daemon.wait_ready()
    try:
        yield daemon
    finally:
        daemon.stop()


@contextmanager
def fresh_policy_server(uri: str, config: str) -> Iterator[PolicyServer]:
    """A server that starts without state; its state is deleted at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="pinner-test-") as folder,
        policy_server(Path(folder), uri, config=config) as server,
    ):
        yield server


@contextmanager
def policy_server(folder: Path, uri: str, *, config: str = "") -> Iterator[PolicyServer]:
    """A server for the guests of the libvirtd at ``uri``; its state is below ``folder``."""
    folder.chmod(0o711)
    file, log = folder / "pinner.conf", folder / "log"
    file.write_text(f"[agent]\nstate_dir = {folder}/state\n[libvirt]\nuri = {uri}\n{api_config()}{config}")
    process = warm.start("serve", "--config-file", file, output=log)
    try:
        server = PolicyServer(process, log)
        with server.http:
            yield server
    finally:
        process.terminate()
        process.wait()


def wait_until(condition: Callable[[], object], seconds: float, pause: float = 0.05) -> float:
    """Wait for the condition; the seconds it took, and ``seconds`` if it never became true.

    It is looked at again after a ``pause``: a shorter one measures better, and costs more.
    """
    began = time.perf_counter()
    while not condition():
        if time.perf_counter() - began > seconds:
            return seconds
        time.sleep(pause)
    return time.perf_counter() - began


def qemu_of(libvirt: Libvirt, guest: Guest) -> int:
    """The current process id of the guest's QEMU."""
    return next(each.pid for each in libvirt.guests(ROOT) if each.uuid == guest.uuid)


def all_on(pid: int, cpus: object) -> bool:
    """Whether every thread of a process may run on exactly these CPUs."""
    return set(masks(pid).values()) == {str(cpus)}


def guest_on(pid: int, emulator: object, vcpu: object) -> bool:
    """Whether every vCPU of a QEMU may run on exactly the CPUs ``vcpu``, and every other thread on ``emulator``."""
    found, named = masks(pid), names(pid)
    wanted = {tid: str(vcpu if name.startswith("CPU ") else emulator) for tid, name in named.items()}
    return all(found.get(tid, mask) == mask for tid, mask in wanted.items())
