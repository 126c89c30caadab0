"""A flood of small packets into a real guest with four vCPUs and one queue, before and after a plan for its inside."""

import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import private_libvirt
import pytest
from demo import environment as demo_environment
from support.guests.agent_guest import BOOT_SECONDS, NEEDS_AGENT, AgentGuest, agent_guest, agent_runs
from support.guests.measured_host import wait_until

from pinner.host.inventory import LIVE
from pinner.host.reading.sampler import SOFTIRQS
from pinner.host.settings.inside.guests import InsideReader, agent_of
from pinner.host.virt.libvirt import Libvirt

PACKETS = 30_000
FLOWS = 256
ATTEMPTS = 20

pytestmark = [
    NEEDS_AGENT,
    pytest.mark.needs("root", "taps"),
    pytest.mark.slow("a Linux guest with four vCPUs"),
]


@pytest.fixture
def guest(module_room_for_libvirtd: None, tmp_path: Path) -> Iterator[AgentGuest]:
    with (
        demo_environment.scratch() as scratch,
        private_libvirt.private_libvirtd(scratch / "libvirt") as uri,
        agent_guest(uri, scratch, vcpus=4) as made,
    ):
        wait_until(lambda: not made.rps(Libvirt(uri)).unread, BOOT_SECONDS)
        yield made


def flood(tap: str, mac: str) -> None:
    """Send small UDP packets of many flows to the guest."""
    address = bytes.fromhex(mac.replace(":", ""))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
        sender.bind((tap, 0))
        for number in range(PACKETS):
            ports = struct.pack("!HHHH", 1024 + number % FLOWS, 9, 26, 0)
            header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 46, 0, 0, 64, 17, 0, b"\x0a\0\0\2", b"\x0a\0\0\1")
            frame = address + b"\2\0\0\0\0\1" + b"\x08\0" + with_sum(header) + ports + bytes(18)
            with suppress(OSError):  # the queue of the tap is full
                sender.send(frame)


def with_sum(header: bytes) -> bytes:
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return header[:10] + struct.pack("!H", ~(total + (total >> 16)) & 0xFFFF) + header[12:]


@dataclass(frozen=True, slots=True)
class Flood:
    """What the guest received of a flood."""

    softirqs: Counter[int]
    """NET_RX by vCPU."""
    packets: int
    """IP packets that reached the guest's IP layer, which is after RPS."""
    seconds: float

    @property
    def largest_share(self) -> float:
        return max(self.softirqs.values()) / self.softirqs.total()

    @property
    def rate(self) -> float:
        """Packets/s."""
        return self.packets / self.seconds


class FloodedGuest:
    """Floods the guest, and asks its agent what it received."""

    def __init__(self, guest: AgentGuest) -> None:
        self._libvirt = Libvirt(guest.uri)
        (self._guest,) = (each for each in self._libvirt.guests(LIVE) if each.name == guest.name)

    def flood(self) -> Flood:
        softirqs, packets, began = self._softirqs(), self._packets(), time.monotonic()
        flood(self._guest.taps[0].name, self._guest.taps[0].mac)
        seconds = time.monotonic() - began
        return Flood(self._softirqs() - softirqs, self._packets() - packets, seconds)

    def _softirqs(self) -> Counter[int]:
        (answer,) = InsideReader(self._libvirt).read([self._guest], {"softirqs": SOFTIRQS})["softirqs"]
        assert not answer.unread, answer
        return Counter(answer.received)

    def _packets(self) -> int:
        text = agent_of(self._libvirt, self._guest.uuid, "the guest").read("/proc/net/snmp")
        names, counts = (line.split() for line in text.splitlines() if line.startswith("Ip: "))
        return int(dict(zip(names, counts, strict=True))["InReceives"])


@contextmanager
def applied(guest: AgentGuest, folder: Path) -> Iterator[None]:
    """The plan for the inside, until it is rolled back."""
    with agent_runs(Libvirt(guest.uri), folder) as runs:
        # A busy guest may answer too late: then the plan leaves it out.
        plans = (runs.plan("guest-rps", "guest-rfs", "guest-irqs") for _ in range(ATTEMPTS))
        runs.apply(next(plan for plan in plans if plan.changes), "run-1")
        yield
        assert runs.rollback("run-2", "run-1").state == "rolled_back"


def test_the_packets_of_a_queue_are_the_work_of_several_vcpus(
    guest: AgentGuest, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    flooded = FloodedGuest(guest)
    before = flooded.flood()
    with applied(guest, tmp_path):
        after = flooded.flood()
    shares = [before.largest_share, after.largest_share]
    rates = [before.rate, after.rate]
    record_property("shares", shares)
    record_property("packets", [before.packets, after.packets])
    record_property("packets/s", rates)
    record_property("ratio of packets/s", after.rate / before.rate)
    print(before, after, "largest shares:", shares, "packets/s:", rates, "ratio:", after.rate / before.rate)
    assert min(before.packets, after.packets) > 0, (before, after)
    assert shares[0] > 0.9, before
    assert shares[1] < 0.75, after
