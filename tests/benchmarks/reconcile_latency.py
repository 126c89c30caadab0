"""The reconcile latency: the time until a restarted daemon and a restarted guest are placed by an enforced policy.

Run ``python tests/benchmarks/reconcile_latency.py [RESTARTS]`` as root. `pinner serve` runs as it does in production.
The benchmark reads the masks of all threads from the kernel until all are right. The time begins for the daemon when
the kernel runs it, and for the guest when libvirt reports that it has started it.
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

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "tools")]

# ruff: noqa: E402 - the modules below are found through the path above
import private_libvirt
from support.policy_host import Daemon, PolicyServer, all_on, guest_on, policy_server, wait_until

from pinner.host import qemu

RESTARTS = 200
LONGEST = 10.0
"""Seconds: the recorded latency of a restart that is not reconciled by then."""
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


def daemons(server: PolicyServer, folder: Path, restarts: int) -> list[float]:
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

        return [_timed(restart) for _ in range(restarts)]
    finally:
        daemon.stop()


def guests(server: PolicyServer, uri: str, restarts: int) -> list[float]:
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

    return [_timed(restart) for _ in range(restarts)]


def rows(restarts: int = RESTARTS) -> list[dict[str, str]]:
    """A row for the daemon and one for the guest; no rows where no guest can run."""
    if why := private_libvirt.missing():
        print(f"the reconcile latency is not measured: {why}", file=sys.stderr)
        return []
    with host() as (server, uri, folder):
        found = {"daemon": daemons(server, folder, restarts), "guest": guests(server, uri, restarts)}
    return [
        {
            "what": f"reconcile latency after a restart, {subject}, {len(seconds)} times",
            "ours": f"{statistics.median(seconds) * 1000:.0f} ms, at worst "
            f"{statistics.quantiles(seconds, n=100)[98] * 1000:.0f} ms in 99 of 100",
        }
        for subject, seconds in found.items()
    ]


def _timed(restart: Callable[[], Callable[[], bool]]) -> float:
    is_placed = restart()
    took = wait_until(is_placed, LONGEST)
    time.sleep(REST)
    return took


def _qemu(domain: libvirt.virDomain) -> int:
    uuid = domain.UUIDString()
    return qemu.find(ROOT, {uuid}).qemus[uuid]


if __name__ == "__main__":
    for row in rows(*map(int, sys.argv[1:])):
        print(", ".join(f"{name}: {value}" for name, value in row.items()))
