"""Made-up readings of hosts: two samples of counters, a second apart unless a test says otherwise."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from support.hosts import cpus, guest, plain, snapshot

from pinner.model.cpuset import CpuSet
from pinner.model.guest.guest import Guest, Tap
from pinner.model.machine.topology import Device, Topology
from pinner.model.outcome.check import CheckFinding
from pinner.model.reading import Channels, HostReading, HostSample, Irq, Nic, Rings, RxQueue, ThreadTimes
from pinner.model.snapshot import Snapshot
from pinner.service.hosts.findings import HostChecker

CARD = "0000:3b:00.0"
DISK = "0000:5e:00.0"
SECONDS = 2.0


def tap(name: str = "tap1") -> Tap:
    return Tap(name, "52:54:00:00:00:01", 0, 0, 0, 0)


def host(**more: object) -> Topology:
    """Two nodes of eight CPUs each, with a card and a disk on node 1."""
    devices = (Device("pci", CARD, 1), Device("net", "ens1", 1, CARD), Device("pci", DISK, 1))
    return plain(16, 2, devices=devices, **more)


def placed(vcpus: str = "4-7", emulator: str = "2-3", **more: object) -> Guest:
    """A guest whose vCPUs and emulator have CPUs of their own, with one tap that vhost serves."""
    facts = {"taps": (tap(),), "vhost_threads": 1} | more
    return guest(1, len(cpus(vcpus)), cpus(emulator), pins=[vcpus] * len(cpus(vcpus)), **facts)


def nic(name: str = "ens1", device: str = CARD, **more: object) -> Nic:
    facts: dict[str, object] = {
        "node": 1 if device else None,
        "is_up": True,
        "mtu": 1500,
        "queue_length": 1000,
        "master": "",
        "rx_queues": (RxQueue(CpuSet(), 0),) * 4,
        "xps": (CpuSet(),) * 4,
        "statistics": {"rx_packets": 0, "tx_packets": 0, "tx_dropped": 0, "rx_missed_errors": 0},
        "rings": Rings(4096, 4096, 4096, 4096) if device else None,
        "channels": Channels(8, 8, 0, 0, 0, 0) if device else None,
    }
    return Nic(name, device, **{**facts, **more})


def counted(of: Nic, **counts: int) -> Nic:
    """The interface later, when its counters have these values."""
    return replace(of, statistics={**of.statistics, **counts})


def irq(number: int, on: str, counts: Mapping[int, int], device: str = CARD, **more: object) -> Irq:
    return Irq(number, f"ens1-TxRx-{number}", device, cpus(on), cpus(on), counts, **more)


def reading(
    before: HostSample | None = None,
    now: HostSample | None = None,
    guests: Iterable[Guest] = (),
    top: Topology | None = None,
    **more: object,
) -> HostReading:
    """A reading with two samples, of which the first is like the second unless it is given."""
    now = now or before or HostSample()
    taken: Snapshot = snapshot(top or host(), guests, **more)
    return HostReading(taken, (before or now, now), SECONDS)


def delayed(of: Guest, percent: float) -> tuple[HostSample, HostSample]:
    """Two samples between which every vCPU waited so much of the time."""
    tids = [vcpu.thread.tid for vcpu in of.vcpus if vcpu.thread]
    wait = round(percent / 100 * SECONDS * 1e9)
    first, second = ({tid: ThreadTimes(5, at) for tid in tids} for at in (1000, 1000 + wait))
    return HostSample(threads=first), HostSample(threads=second)


def findings(of: HostReading) -> tuple[CheckFinding, ...]:
    return HostChecker().check(of).findings


def codes(of: HostReading) -> set[str]:
    """The codes of the findings that are known."""
    return {each.code for each in findings(of) if each.severity != "unknown"}
