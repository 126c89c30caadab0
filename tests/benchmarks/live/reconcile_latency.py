"""The reconcile latency: the time until a restarted daemon and a restarted guest are placed by an enforced policy.

Run ``python tests/benchmarks/live/reconcile_latency.py [RESTARTS]`` as root. `pinner serve` runs as it does in
production. The benchmark reads the masks of all threads from the kernel until all are right. The time begins for the
daemon when the kernel runs it, and for the guest when libvirt reports that it has started it. A subject that does not
answer is left after two minutes, with the restarts that were measured.
"""

import contextlib
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import libvirt

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[3] / "tools")]

# ruff: noqa: E402 - the modules below are found through the path above
import private_libvirt
from support.server.policy_host import EXACT, Daemon, PolicyServer, all_on, guest_on, policy_server, wait_until

from pinner.host.processes import qemu

RESTARTS = 200
LONGEST = 10.0
"""Seconds: the recorded latency of a restart that is not reconciled by then."""
BOUND = 120.0
"""Seconds for all restarts of one subject."""
REST = 0.1
"""Seconds between two restarts, in which the server completes its work for the first."""
ROOT = Path("/")


@contextlib.contextmanager
def host() -> Iterator[tuple[PolicyServer, str, Path]]:
    """A server for this host and a libvirtd of its own; the URI of the libvirtd, and a folder."""
    with (
        tempfile.TemporaryDirectory(prefix="pinner-bench-", dir="/tmp") as name,
        private_libvirt.private_libvirtd(Path(name) / "d") as uri,
    ):
        Path(name).chmod(0o711)
        state = Path(name) / "serve"
        state.mkdir()
        config = "[host]\nsample_seconds = 0.1\n"
        # The first start creates the databases; the second one measures a server without the memory used for that.
        with policy_server(state, uri, config=config):
            pass
        with policy_server(state, uri, config=config) as server:
            yield server, uri, Path(name)


def daemons(server: PolicyServer, folder: Path, restarts: int) -> Iterator[float]:
    """The seconds from each start of a daemon until all its threads are placed."""
    daemon = Daemon(folder, f"bench-{os.getpid()}"[:15])
    daemon.start()
    try:
        server.policy("enforce", [], [daemon.name])
        cpus = server.wait_reconciled()["housekeeping"]

        def restart() -> Callable[[], bool]:
            daemon.stop()
            daemon.start()
            return lambda: all_on(daemon.pid, cpus)

        for _ in range(restarts):
            yield _timed(restart)
    finally:
        daemon.stop()


def guests(server: PolicyServer, uri: str, restarts: int) -> Iterator[float]:
    """The seconds from each start of a guest until all its threads are placed; it is paused, so it uses no CPU."""
    name = f"bench-{os.getpid()}"
    private_libvirt.define_guest(uri, private_libvirt.guest_xml(name, memory_mib=32), paused=True)
    connection = libvirt.open(uri)
    domain = connection.lookupByName(name)
    server.policy("enforce", [name])
    roles = server.wait_reconciled()

    def restart() -> Callable[[], bool]:
        # libvirt takes a second to destroy a paused guest; a killed QEMU ends at once.
        os.kill(_qemu(domain), signal.SIGKILL)
        while domain.isActive():
            time.sleep(0.005)
        domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
        pid = _qemu(domain)
        return lambda: guest_on(pid, roles["emulator"], roles["vcpu"])

    for _ in range(restarts):
        yield _timed(restart)


def rows(restarts: int = RESTARTS) -> Iterator[dict[str, str]]:
    """A row for the daemon and one for the guest; no rows where no guest can run."""
    if why := private_libvirt.missing():
        print(f"the reconcile latency is not measured: {why}", file=sys.stderr)
        return
    with host() as (server, uri, folder):
        for subject, latencies in (
            ("daemon", daemons(server, folder, restarts)),
            ("guest", guests(server, uri, restarts)),
        ):
            found, problem = answered(latencies, BOUND)
            yield {
                "what": f"reconcile latency after a restart, {subject}, {len(found)} of {restarts} times",
                "ours": _text(found) if len(found) > 1 else "not measured",
                "more": problem,
            }


def answered(latencies: Iterator[float], bound: float) -> tuple[list[float], str]:
    """The latencies that are measured within ``bound`` seconds, and why there are not more; empty if all are."""

    def stop(*_: object) -> None:
        raise TimeoutError

    found: list[float] = []
    earlier = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, bound)
    try:
        found.extend(latencies)
    except TimeoutError:
        return found, f"the other restarts are left out: {bound:g} s are over"
    except AssertionError as error:
        return found, f"never reconciled: {str(error)[:200]}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)
    return found, ""


def _text(seconds: list[float]) -> str:
    worst = statistics.quantiles(seconds, n=100)[98]
    return f"{statistics.median(seconds) * 1000:.0f} ms, at worst {worst * 1000:.0f} ms in 99 of 100"


def _timed(restart: Callable[[], Callable[[], bool]]) -> float:
    is_placed = restart()
    took = wait_until(is_placed, LONGEST, EXACT)
    time.sleep(REST)
    return took


def _qemu(domain: libvirt.virDomain) -> int:
    uuid = domain.UUIDString()
    return qemu.find(ROOT, {uuid}).qemus[uuid]


if __name__ == "__main__":
    for row in rows(*map(int, sys.argv[1:])):
        print(", ".join(f"{name}: {value}" for name, value in row.items()))
