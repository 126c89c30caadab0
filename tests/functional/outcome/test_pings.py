"""Pings of a real guest: answered, not answered while it is paused, and not known where nobody answers."""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from functools import partial
from pathlib import Path

import private_libvirt
import pytest
from demo import environment as demo_environment
from demo.environment import ended
from demo.guest import LinuxGuest, linux_guest
from demo.traffic import GUEST, GUEST_MAC, HOST, HOST_MAC
from support.guests.measured_host import QuickClock, wait_until

from pinner.agent.recorder import SECONDS, Recorder
from pinner.host.live import ROOT
from pinner.host.measure.meter import HostMeter
from pinner.host.measure.pinger import Echoes, Pinger
from pinner.host.virt.libvirt import Libvirt
from pinner.model.outcome.measures import History
from pinner.store.history import HistoryFiles

NOBODY = "192.0.2.3"

pytestmark = [
    pytest.mark.needs("root", "mounts", "network_namespaces", "taps", "icmp"),
    pytest.mark.skipif(bool(private_libvirt.missing()), reason=private_libvirt.missing()),
]


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    with demo_environment.scratch() as folder:
        yield folder


@pytest.fixture(scope="module")
def uri(scratch: Path) -> Iterator[str]:
    with private_libvirt.private_libvirtd(scratch / "libvirt") as uri:
        yield uri


@pytest.fixture(scope="module")
def namespace() -> Iterator[int]:
    """The process of a network namespace of its own: this machine may use the guest's addresses itself."""
    with ended(subprocess.Popen(["unshare", "--net", "cat"], text=True, stdin=subprocess.PIPE)) as process:
        own = Path("/proc/self/ns/net").readlink()
        wait_until(lambda: Path(f"/proc/{process.pid}/ns/net").readlink() != own, 60)
        yield process.pid


@pytest.fixture(scope="module")
def guest(scratch: Path, uri: str, namespace: int) -> Iterator[LinuxGuest]:
    """A Linux guest with a fixed address, whose tap is in the namespace. Nobody has the address NOBODY there."""
    with linux_guest(uri, scratch) as guest:
        subprocess.run(["ip", "link", "set", guest.tap, "netns", str(namespace)], check=True)
        setup = (
            f"link set dev {guest.tap} address {HOST_MAC} up\naddress add {HOST}/24 dev {guest.tap}\n"
            f"neighbour add {GUEST} lladdr {GUEST_MAC} dev {guest.tap} nud permanent\n"
            f"neighbour add {NOBODY} lladdr {GUEST_MAC} dev {guest.tap} nud permanent\n"
        )
        command = ["nsenter", "--net", f"--target={namespace}", "ip", "-batch", "-"]
        subprocess.run(command, input=setup, text=True, check=True)
        yield guest


def echoes_in(namespace: int, address: str) -> Echoes:
    """A socket of the namespace, opened by a thread that enters it."""

    def opened() -> Echoes:
        with Path(f"/proc/{namespace}/ns/net").open() as file:
            assert ctypes.CDLL(None, use_errno=True).setns(file.fileno(), 0) == 0, os.strerror(ctypes.get_errno())
        return Echoes(address)

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(opened).result()


class Measured:
    """What a recorder keeps of the guest that is pinged at an address."""

    def __init__(self, uri: str, guest: LinuxGuest, namespace: int, address: str, folder: Path) -> None:
        self._pinger = Pinger({guest.name: address}, partial(echoes_in, namespace))
        meter = HostMeter(ROOT, Libvirt(uri, 10.0), pings_of=self._pinger)
        self._clock = QuickClock()
        seconds = SECONDS / QuickClock.FACTOR
        self._recorder = Recorder(meter, HistoryFiles(folder), self._clock.now, seconds=seconds)
        self._pinger.start()
        self._recorder.start()

    def close(self) -> None:
        for worker in (self._recorder, self._pinger):
            worker.stop()
        self._recorder.join()

    def history(self) -> History | None:
        end = self._clock.now()
        found = self._recorder.measures(end - timedelta(minutes=5), end, 5)
        return next((each for each in found if each.name), None)

    def latest(self, name: str) -> float | None:
        """The newest known value of a series."""
        history = self.history()
        values = history.values.get(name, ()) if history else ()
        return next((value for value in reversed(values) if value is not None), None)


def test_a_guest_answers_pings_and_loses_them_while_it_is_paused(
    uri: str, guest: LinuxGuest, namespace: int, tmp_path: Path
) -> None:
    with closing(Measured(uri, guest, namespace, GUEST, tmp_path)) as found:
        wait_until(lambda: (found.latest("ping_loss") or 0.0) < 100 and found.latest("ping") is not None, 120)
        answered = found.latest("ping")
        assert answered is not None
        assert 0 < answered < 1000
        private_libvirt.virsh(uri, "suspend", guest.name)
        try:
            wait_until(lambda: found.latest("ping_loss") == pytest.approx(100.0), 60)
            assert found.latest("ping") == pytest.approx(1000.0)
        finally:
            private_libvirt.virsh(uri, "resume", guest.name)
        wait_until(lambda: (found.latest("ping_loss") or 0.0) < 100, 120)


def test_a_guest_that_answers_no_ping_has_no_such_measure(
    uri: str, guest: LinuxGuest, namespace: int, tmp_path: Path
) -> None:
    with closing(Measured(uri, guest, namespace, NOBODY, tmp_path)) as found:
        wait_until(lambda: found.latest("delay_vcpu") is not None, 60)
        history = found.history()
        assert history is not None
        assert "ping" not in history.values
