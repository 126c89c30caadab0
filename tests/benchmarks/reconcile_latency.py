"""How soon what started anew is back in its place: a daemon and a guest, under a policy that is enforced.

Run ``python tests/benchmarks/reconcile_latency.py [RESTARTS]`` as root. `pinner serve` runs as it does in production, and the
kernel is asked for every thread's mask until all are right: of the daemon from the moment that the kernel runs it, of
the guest from the moment that libvirt says it has started it.
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

# ruff: noqa: E402 - what follows is found through the path above
import private_libvirt
from support.policy_host import Daemon, PolicyServer, all_on, guest_on, policy_server, wait_until

from pinner.host import qemu

RESTARTS = 200
LONGEST = 10.0
"""Seconds; what is not back then counts as so long."""
REST = 0.1
"""Seconds between two restarts: what the last one left to do is done."""
ROOT = Path("/")


@contextlib.contextmanager
def host() -> Iterator[tuple[PolicyServer, str, Path]]:
    """A kept host with a libvirtd of its own; its URI, and a folder."""
    with (
        tempfile.TemporaryDirectory(prefix="pinner-bench-", dir="/tmp") as name,
        private_libvirt.private_libvirtd(Path(name) / "d") as uri,
    ):
        Path(name).chmod(0o711)
        served = Path(name) / "serve"
        served.mkdir()
        config = "[host]\nsample_seconds = 0.1\n"
        # The first start makes the databases; what that takes of memory stays until the next.
        with policy_server(served, uri, config=config):
            pass
        with policy_server(served, uri, config=config) as kept:
            yield kept, uri, Path(name)


def daemons(kept: PolicyServer, folder: Path, restarts: int) -> list[float]:
    """Seconds from each start of a daemon until all its threads are in place."""
    daemon = Daemon(folder, f"bench-{os.getpid()}"[:15])
    daemon.start()
    try:
        kept.policy("enforce", [], [daemon.name])
        cpus = kept.wait_settled()["housekeeping"]

        def restart() -> Callable[[], bool]:
            daemon.stop()
            daemon.start()
            return lambda: all_on(daemon.pid, cpus)

        return [_timed(restart) for _ in range(restarts)]
    finally:
        daemon.stop()


def guests(kept: PolicyServer, uri: str, restarts: int) -> list[float]:
    """The same of a guest's stops and starts. It is paused, so that it uses no CPU."""
    name = f"bench-{os.getpid()}"
    private_libvirt.define_guest(uri, private_libvirt.guest_xml(name, memory_mib=32), paused=True)
    connection = libvirt.open(uri)
    domain = connection.lookupByName(name)
    kept.policy("enforce", [name])
    roles = kept.wait_settled()

    def restart() -> Callable[[], bool]:
        # libvirt takes a second to destroy a paused guest; one that was killed is gone at once.
        os.kill(_qemu(domain), signal.SIGKILL)
        while domain.isActive():
            time.sleep(0.005)
        domain.createWithFlags(libvirt.VIR_DOMAIN_START_PAUSED)
        pid = _qemu(domain)
        return lambda: guest_on(pid, roles["emulator"], roles["vcpu"])

    return [_timed(restart) for _ in range(restarts)]


def rows(restarts: int = RESTARTS) -> list[dict[str, str]]:
    """Two rows; none where no guest can run."""
    if why := private_libvirt.missing():
        print(f"re-placement is not measured: {why}", file=sys.stderr)
        return []
    with host() as (kept, uri, folder):
        found = {"daemon": daemons(kept, folder, restarts), "guest": guests(kept, uri, restarts)}
    return [
        {
            "what": f"back in place after a restart, {what}, {len(seconds)} times",
            "ours": f"{statistics.median(seconds) * 1000:.0f} ms, at worst "
            f"{statistics.quantiles(seconds, n=100)[98] * 1000:.0f} ms in 99 of 100",
        }
        for what, seconds in found.items()
    ]


def _timed(restart: Callable[[], Callable[[], bool]]) -> float:
    back = restart()
    took = wait_until(back, LONGEST)
    time.sleep(REST)
    return took


def _qemu(domain: libvirt.virDomain) -> int:
    uuid = domain.UUIDString()
    return qemu.find(ROOT, {uuid}).qemus[uuid]


if __name__ == "__main__":
    for row in rows(*map(int, sys.argv[1:])):
        print(", ".join(f"{name}: {value}" for name, value in row.items()))
