"""Made-up readings of hosts: two samples of counters, a second apart unless a test says otherwise."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from support.hosts import cpus, guest, plain, snapshot

from pinner.model.guest.guest import Guest, Tap
from pinner.model.machine.interrupts import DeviceIrq, DeviceIrqs
from pinner.model.machine.process import CpuQuota
from pinner.model.machine.topology import Device, Topology
from pinner.model.outcome.check import CheckFinding
from pinner.model.reading import (
    HostDetails,
    HostReading,
    HostSample,
    IrqCounts,
    Nic,
    NicCounters,
    ThreadTimes,
    Throttled,
)
from pinner.model.settings.cards import NO_ROOM, CardQueues, RefusedSetting, RpsQueue, RxCoalescing, RxRing
from pinner.model.snapshot import Snapshot
from pinner.service.hosts.checker import HostChecker

CARD = "0000:3b:00.0"
DISK = "0000:5e:00.0"
SECONDS = 2.0
SYSCTLS = {
    "kernel.numa_balancing": 0,
    "kernel.sched_rt_runtime_us": -1,
    "net.core.netdev_budget": 300,
    "net.core.netdev_max_backlog": 1000,
    "net.core.rmem_max": 212_992,
    "net.core.somaxconn": 128,
    "vm.swappiness": 60,
}


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


@dataclass(frozen=True)
class Card:
    """A network interface at one moment, with all that the snapshot, the details and the sample have of it."""

    nic: Nic
    statistics: Mapping[str, int]
    driver: Mapping[str, int]
    ring: tuple[int, int] | None
    """Its size and its maximum."""
    queues: tuple[int, int] | None
    coalescing: tuple[int, int, bool] | None
    rps: tuple[str, ...]
    """The CPUs of each receive queue."""
    refused: str
    """Why its driver does not tell its rings."""


@dataclass(frozen=True)
class Interrupt:
    """An interrupt at one moment."""

    irq: DeviceIrq
    counts: Mapping[int, int]


@dataclass(frozen=True)
class Seen:
    """A host at one moment: the counters of ``sample``, and the settings that a snapshot and the details have."""

    irqs: tuple[Interrupt, ...] = ()
    nics: tuple[Card, ...] = ()
    sysctls: Mapping[str, int] | None = None
    sample: HostSample = field(default_factory=HostSample)
    details: HostDetails = field(default_factory=HostDetails)

    @property
    def counters(self) -> HostSample:
        return replace(
            self.sample,
            irqs=tuple(IrqCounts(each.irq.number, each.irq.name, each.counts) for each in self.irqs),
            nics=tuple(NicCounters(card.nic.name, card.nic.index, card.statistics, card.driver) for card in self.nics),
        )

    def settings(self, before: "Seen") -> dict[str, object]:
        """The settings of a snapshot."""
        cards, packets = self.nics, {card.nic.key: card.statistics.get("rx_packets", 0) for card in before.nics}
        return {
            "irqs": DeviceIrqs(tuple(each.irq for each in self.irqs)),
            "rings": tuple(
                RxRing(card.nic.name, card.nic.index, *card.ring, has_dropped=any(map(card.statistics.get, NO_ROOM)))
                for card in cards
                if card.ring
            ),
            "queues": tuple(
                CardQueues(card.nic.name, card.nic.index, *card.queues, card.nic.is_up) for card in cards if card.queues
            ),
            "coalescing": tuple(
                RxCoalescing(
                    card.nic.name,
                    card.nic.index,
                    *card.coalescing,
                    rate=(card.statistics.get("rx_packets", 0) - packets.get(card.nic.key, 0)) / SECONDS,
                )
                for card in cards
                if card.coalescing
            ),
            "rps": tuple(
                RpsQueue(card.nic.name, card.nic.index, number, cpus(mask))
                for card in cards
                for number, mask in enumerate(card.rps)
            ),
            "sysctls": {**SYSCTLS, **(self.sysctls or {})},
            "refused": tuple(RefusedSetting(card.nic.name, "rings", card.refused) for card in cards if card.refused),
        }


def nic(name: str = "ens1", device: str = CARD, **more: object) -> Card:
    facts: dict[str, object] = {
        "statistics": {"rx_packets": 0, "tx_packets": 0, "tx_dropped": 0, "rx_missed_errors": 0},
        "driver": {},
        "ring": (4096, 4096) if device else None,
        "queues": (8, 8) if device else None,
        "coalescing": None,
        "rps": ("",) * 4,
        "refused": "",
    }
    known: dict[str, object] = {"index": 0, "is_up": True, "queue_length": 1000, "rx_flows": (0,) * 4, "tx_queues": 4}
    known |= {key: more.pop(key) for key in (*known, "offloads", "bridge") if key in more}
    return Card(Nic(name=name, device=device, **known), **{**facts, **more})


def counted(of: Card, **counts: int) -> Card:
    """The interface later, when its counters have these values."""
    return replace(of, statistics={**of.statistics, **counts})


def irq(number: int, on: str, counts: Mapping[int, int], device: str = CARD, **more: object) -> Interrupt:
    facts = {"name": f"ens1-TxRx-{number}", "cpus": cpus(on), "effective": cpus(on)} | more
    return Interrupt(DeviceIrq(number, device=device, **facts), counts)


def reading(
    before: Seen | HostSample | None = None,
    now: Seen | HostSample | None = None,
    guests: Iterable[Guest] = (),
    top: Topology | None = None,
    **more: object,
) -> HostReading:
    """A reading with two samples, of which the first is like the second unless it is given."""
    now = _seen(now or before or Seen())
    before = _seen(before or now)
    taken: Snapshot = snapshot(top or host(), guests, **{**now.settings(before), **more})
    details = replace(now.details, nics=tuple(card.nic for card in now.nics))
    return HostReading(taken, (before.counters, now.counters), SECONDS, details)


def _seen(of: Seen | HostSample) -> Seen:
    return Seen(sample=of) if isinstance(of, HostSample) else of


def delayed(of: Guest, percent: float) -> tuple[HostSample, HostSample]:
    """Two samples between which every vCPU waited so much of the time."""
    tids = [vcpu.thread.tid for vcpu in of.vcpus if vcpu.thread]
    wait = round(percent / 100 * SECONDS * 1e9)
    first, second = ({tid: ThreadTimes(5, at) for tid in tids} for at in (1000, 1000 + wait))
    return HostSample(threads=first), HostSample(threads=second)


def limited(
    of: Guest, percent: float, limits: Mapping[str, float], before: int = 0, any_percent: float | None = None
) -> tuple[HostSample, HostSample]:
    """Two samples between which every vCPU waited so much of the time, and a limit of each of these cgroups counted so
    much. vCPU N is in the cgroup guest/vcpuN."""
    cgroups = {vcpu.thread.tid: f"guest/vcpu{vcpu.id}" for vcpu in of.vcpus if vcpu.thread}

    def stopped(times: int) -> dict[str, Throttled]:
        def ns(share: float) -> int:
            return before + times * round(share / 100 * SECONDS * 1e9)

        of_any = None if any_percent is None else ns(any_percent)
        of_none = dict.fromkeys(cgroups.values(), Throttled(None, before, of_any))
        return of_none | {path: Throttled(CpuQuota(20_000), ns(share), of_any) for path, share in limits.items()}

    first, second = delayed(of, percent)
    return replace(first, throttled=stopped(0), cgroups=cgroups), replace(second, throttled=stopped(1), cgroups=cgroups)


def findings(of: HostReading) -> tuple[CheckFinding, ...]:
    return HostChecker().check(of).findings


def codes(of: HostReading) -> set[str]:
    """The codes of the findings that are known."""
    return {each.code for each in findings(of) if each.severity != "unknown"}
