"""How soon a guest that starts is placed, and what each door takes from its word to the right place.

Run ``python tests/benchmarks/spawn.py [STARTS]`` as root. `pinner serve` runs as it does in production under a policy
that is enforced, and the kernel is asked for every thread's mask until all are right. By libvirt's event: guests that
never ran before, from the moment that libvirt says it has started them, one after the other, then twenty at once. By a
notification and by the hook script, which libvirt's event would outrun: daemons that were moved so that nobody is told,
from the moment that the notification is published or the script called.
"""

import contextlib
import copy
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import libvirt

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "tools")]

# ruff: noqa: E402 - what follows is found through the path above
import private_libvirt
import private_rabbit
from reconcile_latency import ROOT, host
from support import samples
from support.nova_listener import listening, publish
from support.policy_host import Daemon, PolicyServer, all_on, guest_on, wait_until

from pinner.host import qemu
from pinner.nova import handover

STARTS = 200
AT_ONCE = 20
LONGEST = 20.0
"""Seconds; what is not in place then counts as so long."""
TIMES = 2
"""How often one daemon is moved: what is moved more often is held to be fought over."""
HOOK = Path(__file__).parents[2] / "etc/pinner/libvirt-qemu-hook"


class Spawner:
    """Starts guests that never ran before, paused, so that they use no CPU."""

    def __init__(self, kept: PolicyServer, uri: str) -> None:
        self._uri = uri
        kept.policy("enforce", [])
        with self.guest():
            self._roles = kept.wait_settled()

    @contextlib.contextmanager
    def guest(self) -> Iterator[tuple[libvirt.virDomain, int]]:
        """A guest and its QEMU, while the body runs."""
        connection = libvirt.open(self._uri)
        xml = private_libvirt.guest_xml(f"bench-{uuid.uuid4()}", memory_mib=32, iothreads=0)
        domain = connection.createXML(xml, libvirt.VIR_DOMAIN_START_PAUSED)
        pid = qemu.find(ROOT, {domain.UUIDString()}).qemus[domain.UUIDString()]
        try:
            yield domain, pid
        finally:
            os.kill(pid, signal.SIGKILL)
            while _active(domain):
                time.sleep(0.005)

    def spawn(self, _: object = None) -> float:
        """Seconds until it is in place."""
        with self.guest() as (_domain, pid):
            return wait_until(lambda: guest_on(pid, self._roles["emulator"], self._roles["vcpu"]), LONGEST)


def told(kept: PolicyServer, folder: Path, count: int, tell: Callable[[], object]) -> list[float]:
    """Seconds from each call of ``tell`` until a daemon that was moved is back."""
    daemons = [Daemon(folder, f"bench-{number}") for number in range(max(count // TIMES, 1))]
    try:
        for daemon in daemons:
            daemon.start()
            daemon.wait_ready()
        kept.policy("enforce", ["none"], [daemon.name for daemon in daemons])
        home = kept.wait_settled()["housekeeping"]
        away = next(cpu for cpu in os.sched_getaffinity(0) if str(cpu) != home)
        return [_back(daemon, home, away, tell) for daemon in daemons for _ in range(TIMES)]
    finally:
        for daemon in daemons:
            daemon.stop()


def _back(daemon: Daemon, home: str, away: int, tell: Callable[[], object]) -> float:
    os.sched_setaffinity(daemon.pid, [away])
    began = time.perf_counter()
    tell()
    wait_until(lambda: all_on(daemon.pid, home), LONGEST)
    took = time.perf_counter() - began
    time.sleep(0.1)
    return took


def notifications(kept: PolicyServer, folder: Path, guest: str, count: int) -> list[float]:
    """Through a broker and the listener; none where either lacks."""
    if why := private_rabbit.missing() or ("" if samples.FILES else "PINNER_NOVA_SAMPLES does not name the samples"):
        print(f"notifications are not measured: {why}", file=sys.stderr)
        return []
    with (
        private_rabbit.private_rabbit(folder / "r") as rabbit,
        listening(folder / "l", rabbit.url, kept.url) as listener,
    ):
        listener.wait_for("listening")
        sample = copy.deepcopy(samples.load("instance-reboot-end"))
        sample["payload"]["nova_object.data"] |= {"uuid": guest, "host": kept.host}
        return told(kept, folder, count, lambda: publish(rabbit.url, sample | {"timestamp": samples.now()}))


class Hook:
    """A copy of the hook script that tells of one guest."""

    def __init__(self, folder: Path, guest: str) -> None:
        self._config = folder / "hook.conf"
        self._script = folder / "hook"
        self._script.write_text(HOOK.read_text().replace(handover.CONFIG, str(self._config)))
        self._script.chmod(0o755)
        self._xml = f"<domain>\n  <uuid>{guest}</uuid>\n</domain>\n".encode()

    def server(self, url: str) -> None:
        """Whom it tells from now on."""
        self._config.write_text(f"url = {url}\npython = {sys.executable}\n")

    def call(self, _: object = None) -> float:
        """Seconds that the script takes."""
        began = time.perf_counter()
        subprocess.run([self._script, "web", "started", "begin", "-"], input=self._xml, check=True)
        return time.perf_counter() - began

    def calls(self, count: int) -> list[float]:
        """The same, with a rest after each, in which what it left to do is done."""
        found = []
        for _ in range(count):
            found.append(self.call())
            time.sleep(0.2)
        return found


def by_hook(kept: PolicyServer, folder: Path, guest: str, times: int) -> dict[str, list[float]]:
    """Through the hook script; and what the script itself takes."""
    hook = Hook(folder, guest)
    hook.server(kept.url)
    found = {f"told to placed by the hook script, {times} times": told(kept, folder, times, hook.call)}
    with socket.create_server(("127.0.0.1", 0), backlog=times) as silent:
        port = silent.getsockname()[1]
        for state, url in (("up", kept.url), ("down", "http://127.0.0.1:1"), ("silent", f"http://127.0.0.1:{port}")):
            hook.server(url)
            found[f"the hook script itself, pinner {state}, {times} times"] = hook.calls(times)
    return found


def rows(starts: int = STARTS) -> list[dict[str, str]]:
    """A row for each door; none where no guest can run."""
    if why := private_libvirt.missing():
        print(f"spawns are not measured: {why}", file=sys.stderr)
        return []
    # Without a handler libvirt prints every error to the terminal, although it raises it too.
    libvirt.registerErrorHandler(lambda *_: None, None)
    with host() as (kept, uri, folder), tempfile.TemporaryDirectory(dir=folder) as work:
        spawner = Spawner(kept, uri)
        found = {f"spawn to placed by libvirt's event, {starts} guests": [spawner.spawn() for _ in range(starts)]}
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found[f"the same, {AT_ONCE} at once"] = list(pool.map(spawner.spawn, range(AT_ONCE)))
        with spawner.guest() as (domain, _):
            guest, times = domain.UUIDString(), max(starts, TIMES)
            found[f"told to placed by a notification, {times} times"] = notifications(kept, Path(work), guest, times)
            found |= by_hook(kept, Path(work), guest, times)
    return [{"what": what, "ours": _words(seconds)} for what, seconds in found.items() if seconds]


def _words(seconds: list[float]) -> str:
    worst = statistics.quantiles(seconds, n=100)[98] if len(seconds) > AT_ONCE else max(seconds)
    often = "in 99 of 100" if len(seconds) > AT_ONCE else ""
    return f"{statistics.median(seconds) * 1000:.0f} ms, at worst {worst * 1000:.0f} ms {often}".rstrip()


def _active(domain: libvirt.virDomain) -> bool:
    try:
        return bool(domain.isActive())
    except libvirt.libvirtError:
        return False


if __name__ == "__main__":
    for row in rows(*map(int, sys.argv[1:])):
        print(", ".join(f"{name}: {value}" for name, value in row.items()))
