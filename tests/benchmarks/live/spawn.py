"""The time until a started guest is placed, and the time from an event to the placement for each interface.

Run ``python tests/benchmarks/live/spawn.py [STARTS]`` as root. `pinner serve` runs as it does in production, with an
enforced policy. The benchmark reads the masks of all threads from the kernel until all are right.

- Event of libvirt: new guests, from the time that libvirt reports their start; one at a time, then twenty at once.
- Notification and hook script: daemons, from the time that the notification is published or the script called. They
  were moved in a way that causes no event, because an event of libvirt would arrive first.
"""

import contextlib
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

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[3] / "tools")]

# ruff: noqa: E402 - the modules below are found through the path above
import private_libvirt
import private_rabbit
from benchmarks.live.reconcile_latency import ROOT, host
from support.nova import samples
from support.nova.nova_listener import listening, publish
from support.server.policy_host import EXACT, Daemon, PolicyServer, all_on, guest_on, wait_until

from pinner.host.processes import qemu
from pinner.nova.delivery import handover

STARTS = 200
AT_ONCE = 20
LONGEST = 20.0
"""Seconds: the recorded time of a guest or daemon that is not placed by then."""
TIMES = 2
"""How often one daemon is moved: pinner backs off from a process that is moved more often."""
HOOK = Path(__file__).parents[3] / "etc/pinner/libvirt-qemu-hook"


class Spawner:
    """Starts new guests; they are paused, so that they use no CPU."""

    def __init__(self, server: PolicyServer, uri: str) -> None:
        self._uri = uri
        server.policy("enforce", [])
        with self.guest():
            self._roles = server.wait_reconciled()

    @contextlib.contextmanager
    def guest(self) -> Iterator[tuple[libvirt.virDomain, int]]:
        """A running guest and the process id of its QEMU; both end with the context."""
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
        """Start a guest; the seconds until it is placed."""
        with self.guest() as (_domain, pid):
            return wait_until(lambda: guest_on(pid, self._roles["emulator"], self._roles["vcpu"]), LONGEST, EXACT)


def event_latencies(server: PolicyServer, folder: Path, count: int, send: Callable[[], object]) -> list[float]:
    """The seconds from each call of ``send`` until a moved daemon is placed again."""
    daemons = [Daemon(folder, f"bench-{number}") for number in range(max(count // TIMES, 1))]
    try:
        for daemon in daemons:
            daemon.start()
            daemon.wait_ready()
        server.policy("enforce", [str(uuid.uuid4())], [daemon.name for daemon in daemons])
        home = server.wait_reconciled()["housekeeping"]
        away = next(cpu for cpu in os.sched_getaffinity(0) if str(cpu) != home)
        return [_event_latency(daemon, home, away, send) for daemon in daemons for _ in range(TIMES)]
    finally:
        for daemon in daemons:
            daemon.stop()


def _event_latency(daemon: Daemon, home: str, away: int, send: Callable[[], object]) -> float:
    os.sched_setaffinity(daemon.pid, [away])
    began = time.perf_counter()
    send()
    wait_until(lambda: all_on(daemon.pid, home), LONGEST)
    took = time.perf_counter() - began
    time.sleep(0.1)
    return took


def notifications(server: PolicyServer, folder: Path, guest: str, count: int) -> list[float]:
    """The latencies of notifications through a broker and the listener; empty without a broker."""
    if why := private_rabbit.missing():
        print(f"notifications are not measured: {why}", file=sys.stderr)
        return []
    with (
        private_rabbit.private_rabbit(folder / "r") as rabbit,
        listening(folder / "l", rabbit.url, server.url) as listener,
    ):
        listener.wait_for("listening")
        sample = samples.OWN.load("reboot-end")
        sample["payload"]["nova_object.data"] |= {"uuid": guest, "host": server.host}
        return event_latencies(
            server, folder, count, lambda: publish(rabbit.url, sample | {"timestamp": samples.now()})
        )


class Hook:
    """A copy of the hook script, called for the start of one guest."""

    def __init__(self, folder: Path, guest: str) -> None:
        self._config = folder / "hook.conf"
        self._script = folder / "hook"
        self._script.write_text(HOOK.read_text().replace(handover.CONFIG, str(self._config)))
        self._script.chmod(0o755)
        self._xml = f"<domain>\n  <uuid>{guest}</uuid>\n</domain>\n".encode()

    def set_server(self, url: str) -> None:
        """Set the server that the script reports to."""
        self._config.write_text(f"url = {url}\npython = {sys.executable}\n")

    def call(self, _: object = None) -> float:
        """Run the script; the seconds that it takes."""
        began = time.perf_counter()
        subprocess.run([self._script, "web", "started", "begin", "-"], input=self._xml, check=True)
        return time.perf_counter() - began

    def calls(self, count: int) -> list[float]:
        """The seconds of many calls, with a pause after each in which the script's background process ends."""
        found = []
        for _ in range(count):
            found.append(self.call())
            time.sleep(0.2)
        return found


def by_hook(server: PolicyServer, folder: Path, guest: str, times: int) -> dict[str, list[float]]:
    """The latencies of events through the hook script, and the times of the script itself."""
    hook = Hook(folder, guest)
    hook.set_server(server.url)
    found = {f"event to placed, hook script, {times} times": event_latencies(server, folder, times, hook.call)}
    with socket.create_server(("127.0.0.1", 0), backlog=times) as silent:
        port = silent.getsockname()[1]
        for state, url in (("up", server.url), ("down", "http://127.0.0.1:1"), ("silent", f"http://127.0.0.1:{port}")):
            hook.set_server(url)
            found[f"the hook script itself, pinner {state}, {times} times"] = hook.calls(times)
    return found


def rows(starts: int = STARTS) -> Iterator[dict[str, str]]:
    """A row for each interface; no rows where no guest can run."""
    if why := private_libvirt.missing():
        print(f"spawns are not measured: {why}", file=sys.stderr)
        return
    # Without a handler libvirt prints every error to the terminal, although it raises it too.
    libvirt.registerErrorHandler(lambda *_: None, None)
    with host() as (server, uri, folder), tempfile.TemporaryDirectory(dir=folder) as work:
        spawner = Spawner(server, uri)
        times = max(starts, TIMES)
        yield from _row(f"start to placed, event of libvirt, {starts} guests", [spawner.spawn() for _ in range(starts)])
        with ThreadPoolExecutor(AT_ONCE) as pool:
            yield from _row(f"the same, {AT_ONCE} at once", list(pool.map(spawner.spawn, range(AT_ONCE))))
        with spawner.guest() as (domain, _):
            guest = domain.UUIDString()
            published = notifications(server, Path(work), guest, times)
            yield from _row(f"event to placed, notification, {times} times", published)
            for what, seconds in by_hook(server, Path(work), guest, times).items():
                yield from _row(what, seconds)


def _row(what: str, seconds: list[float]) -> Iterator[dict[str, str]]:
    if seconds:
        yield {"what": what, "ours": _text(seconds)}


def _text(seconds: list[float]) -> str:
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
